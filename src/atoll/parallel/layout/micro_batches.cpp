#include "atoll/parallel/layout/micro_batches.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

std::vector<std::int64_t> even_shares(std::int64_t num_micro_batches, int num_ranks) {
  ATOLL_CHECK(num_micro_batches >= 0 && num_ranks >= 1, "{} micro-batches on {} ranks",
              num_micro_batches, num_ranks);
  std::vector<std::int64_t> shares;
  for (int r = 0; r < num_ranks; ++r) {
    shares.push_back(num_micro_batches / num_ranks + (r < num_micro_batches % num_ranks ? 1 : 0));
  }
  return shares;
}

}  // namespace

MicroBatchPlan::MicroBatchPlan(std::int64_t num_micro_batches, int num_ranks)
    : MicroBatchPlan(even_shares(num_micro_batches, num_ranks)) {}

MicroBatchPlan::MicroBatchPlan(std::vector<std::int64_t> shares) : shares_(std::move(shares)) {
  ATOLL_CHECK(!shares_.empty() && rounds() >= 1, "no micro-batches");
}

std::int64_t MicroBatchPlan::num_micro_batches() const {
  return std::accumulate(shares_.begin(), shares_.end(), std::int64_t{0});
}

std::int64_t MicroBatchPlan::rounds() const {
  return *std::max_element(shares_.begin(), shares_.end());
}

std::vector<int> MicroBatchPlan::contributors(std::int64_t round) const {
  std::vector<int> ranks;
  for (int r = 0; r < num_ranks(); ++r) {
    if (share(r) > round) ranks.push_back(r);
  }
  return ranks;
}

std::vector<std::int64_t> MicroBatchPlan::of(int rank) const {
  std::vector<std::int64_t> numbers;
  std::int64_t before = 0;  // micro-batches of earlier rounds
  for (std::int64_t round = 0; round < share(rank); ++round) {
    std::int64_t place = before;
    for (int r = 0; r < num_ranks(); ++r) {
      if (share(r) <= round) continue;
      if (r < rank) ++place;
      ++before;
    }
    numbers.push_back(place);
  }
  return numbers;
}

}  // namespace atl::parallel
