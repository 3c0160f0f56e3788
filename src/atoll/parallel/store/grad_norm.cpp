#include "atoll/parallel/store/grad_norm.h"

#include <algorithm>

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::parallel {

GradNorm::GradNorm(const FlatLayout& layout, std::span<const optim::ParamRange> ranges, int rank)
    : blocks_(norm_blocks(ranges)), rank_(rank) {
  // Sorting the blocks of all ranks by their first element gives the order of the flat vector.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;  // first element, gathered block
  parts_.push_back(0);
  for (int r = 0; r < layout.num_ranks(); ++r) {
    for (optim::ParamRange& range : std::vector(layout.ranges_of(r))) {
      range.grad_begin = range.begin;
      for (const NormBlock& block : norm_blocks(std::span(&range, 1))) {
        places.emplace_back(block.begin, static_cast<std::int64_t>(places.size()));
      }
    }
    parts_.push_back(static_cast<std::int64_t>(places.size()));
  }
  std::sort(places.begin(), places.end());
  for (const auto& [element, number] : places) order_.push_back(number);
}

std::vector<double> GradNorm::squares(Run& run, const Tensor& grads, comm::Group* group) const {
  std::vector<ops::Block> blocks;
  blocks.reserve(blocks_.size());
  for (const NormBlock& block : blocks_) blocks.push_back({block.begin, block.count});
  std::vector<double> mine(blocks.size());
  ops::sums_of_squares(run, grads, blocks, mine);
  if (parts_.empty()) return mine;
  ATOLL_CHECK(group != nullptr, "not connected");
  std::vector<double> all(order_.size());
  std::copy(mine.begin(), mine.end(), all.begin() + parts_[static_cast<std::size_t>(rank_)]);
  group->all_gather({all.data(), {Dtype::kF64, {static_cast<std::int64_t>(all.size())}}}, parts_);
  std::vector<double> ordered;
  ordered.reserve(order_.size());
  for (const std::int64_t number : order_) ordered.push_back(all[static_cast<std::size_t>(number)]);
  return ordered;
}

}  // namespace atl::parallel
