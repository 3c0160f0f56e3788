#include "atoll/nn/expert_parallel.h"

#include <algorithm>

#include "atoll/nn/waiting.h"
#include "atoll/ops/elementwise.h"
#include "atoll/ops/expert_rows.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {

namespace {

// What is kept: how many rows each rank sends to each expert, and of how many choices, (e, E + 1);
// where the rows of each expert here begin, (E / e + 1).
enum Kept { kCounts, kOffsets };

using Index = std::int32_t;

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements()});
}

// A column of as many elements.
Tensor column(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements(), 1});
}

// Who sends how many rows to which expert.
class Counts {
 public:
  Counts(std::span<const Index> counts, int num_ranks)
      : counts_(counts), width_(std::ssize(counts) / num_ranks) {}

  std::int64_t num_experts() const { return width_ - 1; }
  std::int64_t of(int rank, std::int64_t expert) const {
    return counts_[static_cast<std::size_t>(rank * width_ + expert)];
  }
  std::int64_t choices(int rank) const { return of(rank, num_experts()); }

 private:
  std::span<const Index> counts_;
  std::int64_t width_;
};

}  // namespace

TokenDispatch::Footprint ExpertParallelDispatch::plan(const Setup& setup, const Spec& x,
                                                      std::int64_t most) const {
  ATOLL_CHECK_EQ(setup.num_here * axis_->size, setup.num_experts);
  const std::int64_t tokens = x.shape.dim(0);
  const std::int64_t own = tokens * setup.top_k;
  const std::int64_t of_a_rank =
      std::min(tokens * std::min(setup.top_k, setup.num_here), most * setup.num_here);
  Footprint footprint;
  footprint.rows = axis_->size * of_a_rank;
  footprint.kept = {{Dtype::kI32, {axis_->size, setup.num_experts + 1}},
                    {Dtype::kI32, {setup.num_here + 1}}};
  const Dtype compute = compute_dtype(x.dtype);
  const std::size_t moved = align_up(Spec{x.dtype, {own, x.shape.dim(1)}}.bytes());
  const std::size_t weighed = 2 * align_up(Spec{compute, {own}}.bytes()) +
                              2 * align_up(Spec{compute, {footprint.rows}}.bytes()) +
                              align_up(Spec{Dtype::kI32, {footprint.rows}}.bytes());
  footprint.scratch = std::max(moved, weighed);
  return footprint;
}

void ExpertParallelDispatch::begin(Run& /*run*/, const Setup& setup, const Choices& choices) {
  const int e = axis_->size;
  const Tensor& counts = choices.kept[kCounts];
  const HostRead offsets(choices.offsets), places(choices.places);
  const std::span<const Index> begins = offsets.elements<Index>();
  const std::span<const Index> rows = places.elements<Index>();
  const std::int64_t num_experts = setup.num_experts;
  write_on_host<Index>(counts.rows(axis_->rank, axis_->rank + 1), [&](std::span<Index> mine) {
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) mine[i] = begins[i + 1] - begins[i];
    const auto has_row = [](Index place) { return place >= 0; };
    mine.back() = static_cast<Index>(std::count_if(rows.begin(), rows.end(), has_row));
  });
  ATOLL_CHECK(axis_->group != nullptr && axis_->group->size() == e, "not connected");
  {
    const Waiting waiting(*axis_);
    axis_->group->all_gather(flat(counts), axis_->group->even_parts(counts.num_elements()));
  }
  const HostRead gathered(counts);
  const Counts all(gathered.elements<Index>(), e);
  for (int r = 0; r < e; ++r) {
    std::int64_t received = 0;
    for (std::int64_t expert = 0; expert < num_experts; ++expert) received += all.of(r, expert);
    ATOLL_CHECK(received == all.choices(r),
                "rank {} of the expert axis has rows for {} choices of experts, and the experts "
                "receive {}",
                r, all.choices(r), received);
  }
  const std::int64_t first = axis_->rank * setup.num_here;
  write_on_host<Index>(choices.kept[kOffsets], [&](std::span<Index> here) {
    here[0] = 0;
    for (std::int64_t i = 0; i < setup.num_here; ++i) {
      std::int64_t received = 0;
      for (int r = 0; r < e; ++r) received += all.of(r, first + i);
      const auto at = static_cast<std::size_t>(i);
      here[at + 1] = here[at] + static_cast<Index>(received);
    }
  });
}

TokenDispatch::Rows ExpertParallelDispatch::rows(const Choices& choices) const {
  const HostRead offsets(choices.kept[kOffsets]);
  // Where nothing has come, one row is there that belongs to no expert: ops take no empty tensors.
  return {std::max<std::int64_t>(1, offsets.elements<Index>().back()), choices.kept[kOffsets]};
}

void ExpertParallelDispatch::move(Run& run, const Choices& choices, Way way, const Tensor& sorted,
                                  const Tensor& rows) {
  const HostRead read_counts(choices.kept[kCounts]), read_begins(choices.offsets),
      read_here(choices.kept[kOffsets]);
  const Counts counts(read_counts.elements<Index>(), axis_->size);
  const std::span<const Index> begins = read_begins.elements<Index>();
  const std::span<const Index> begins_here = read_here.elements<Index>();
  const std::int64_t num_here = std::ssize(begins_here) - 1;
  const bool to_experts = way == Way::kToExperts;
  std::vector<comm::Piece>& of_sorted = to_experts ? sends_ : receives_;
  std::vector<comm::Piece>& of_rows = to_experts ? receives_ : sends_;
  of_sorted.clear();
  of_rows.clear();
  for (std::int64_t i = 0; i < num_here; ++i) {
    std::int64_t at = begins_here[static_cast<std::size_t>(i)];
    for (int r = 0; r < axis_->size; ++r) {
      // To this rank's expert i, of rank r's tokens.
      const std::int64_t come = counts.of(r, axis_->rank * num_here + i);
      const Tensor here = rows.rows(at, at + come);
      at += come;
      // To rank r's expert i, of this rank's tokens.
      const std::int64_t expert = r * num_here + i;
      const std::int64_t begin = begins[static_cast<std::size_t>(expert)];
      const Tensor own = sorted.rows(begin, begin + counts.of(axis_->rank, expert));
      if (r == axis_->rank) {
        if (come > 0) ops::copy(run, to_experts ? own : here, to_experts ? here : own);
        continue;
      }
      if (own.num_elements() > 0) of_sorted.push_back({r, own});
      if (here.num_elements() > 0) of_rows.push_back({r, here});
    }
  }
  if (sends_.empty() && receives_.empty()) return;
  const Waiting waiting(*axis_);
  axis_->group->exchange(sends_, receives_);
}

void ExpertParallelDispatch::to_experts(Run& run, const Choices& choices, const Tensor& x,
                                        const Tensor& rows) {
  Run inner = run;
  const Tensor sorted = inner.take_scratch({x.dtype(), {choices.sources.num_elements(), x.dim(1)}});
  ops::gather_rows(inner, x, choices.sources, sorted);
  move(inner, choices, Way::kToExperts, sorted, rows);
}

void ExpertParallelDispatch::from_experts(Run& run, const Choices& choices, const Tensor& rows,
                                          const Tensor& weights, const Tensor& y) {
  Run inner = run;
  const Tensor sorted = inner.take_scratch({y.dtype(), {choices.sources.num_elements(), y.dim(1)}});
  move(inner, choices, Way::kFromExperts, sorted, rows);
  ops::combine_rows(inner, sorted, choices.places, weights, y);
}

// The weights go to where the rows are, and their gradients come back.
void ExpertParallelDispatch::weigh(Run& run, const Choices& choices, const Tensor& weights,
                                   const Tensor& dh, const Tensor& h, const Tensor& d,
                                   const Tensor& dweights) {
  Run inner = run;
  const Spec own = {weights.dtype(), {weights.num_elements(), 1}};
  const Spec here = {weights.dtype(), {h.dim(0), 1}};
  const Tensor sorted = inner.take_scratch(own);
  const Tensor dsorted = inner.take_scratch(own);
  const Tensor row_weights = inner.take_scratch(here);
  const Tensor drow_weights = inner.take_scratch(here);
  const Tensor numbers = inner.take_scratch({Dtype::kI32, {h.dim(0)}});
  ops::gather_rows(inner, column(weights), choices.sources, sorted);
  move(inner, choices, Way::kToExperts, sorted, row_weights);
  const HostRead begins(choices.kept[kOffsets]);
  const Index used = begins.elements<Index>().back();
  write_on_host<Index>(numbers, [&](std::span<Index> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<Index>(i) < used ? static_cast<Index>(i) : -1;
    }
  });
  ops::weigh_rows(inner, row_weights, numbers, dh, h, d, drow_weights);
  move(inner, choices, Way::kFromExperts, dsorted, drow_weights);
  ops::combine_rows(inner, dsorted, column(choices.places), {}, column(dweights));
}

}  // namespace atl::nn
