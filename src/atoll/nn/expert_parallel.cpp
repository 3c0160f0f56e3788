#include "atoll/nn/expert_parallel.h"

#include <algorithm>
#include <numeric>

#include "atoll/nn/waiting.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/routing/expert_rows.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {

namespace {

// What is kept: where the rows of each expert here begin, (E / e + 1).
enum Kept { kOffsets };

using Index = std::int32_t;

// A column of as many elements.
Tensor column(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements(), 1});
}

std::span<const Index> row_of(const std::vector<Index>& counts, int rank, int num_ranks) {
  const std::size_t width = counts.size() / static_cast<std::size_t>(num_ranks);
  return std::span(counts).subspan(static_cast<std::size_t>(rank) * width, width);
}

std::int64_t sum(std::span<const Index> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Choices that have a row. Where a GPU has them nobody looks: that they are as many as the rows of
// all experts is what `begins` says.
std::int64_t count_choices(const Tensor& places, std::span<const Index> begins) {
  if (!is_on_host(places)) return begins.back();
  const HostRead read(places);
  const std::span<const Index> rows = read.elements<Index>();
  return std::count_if(rows.begin(), rows.end(), [](Index place) { return place >= 0; });
}

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
  footprint.kept = {{Dtype::kI32, {setup.num_here + 1}}};
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
  Known& known = known_[choices.kept[kOffsets].raw()];
  {
    const HostRead offsets(choices.offsets);
    const std::span<const Index> begins = offsets.elements<Index>();
    known.begins.assign(begins.begin(), begins.end());
  }
  // Behind the rows for each expert, of how many choices they are.
  const std::int64_t width = setup.num_experts + 1;
  known.counts.resize(static_cast<std::size_t>(e * width));
  const auto mine = known.counts.begin() + axis_->rank * width;
  std::transform(known.begins.begin() + 1, known.begins.end(), known.begins.begin(), mine,
                 std::minus<>());
  mine[setup.num_experts] = static_cast<Index>(count_choices(choices.places, known.begins));
  ATOLL_CHECK(axis_->group != nullptr && axis_->group->size() == e, "not connected");
  {
    const Waiting waiting(*axis_);
    axis_->group->all_gather({known.counts.data(), {Dtype::kI32, {e * width}}},
                             axis_->group->even_parts(e * width));
  }
  for (int r = 0; r < e; ++r) {
    const std::span<const Index> row = row_of(known.counts, r, e);
    const std::int64_t received = sum(row.first(row.size() - 1));
    ATOLL_CHECK(received == row.back(),
                "rank {} of the expert axis has rows for {} choices of experts, and the experts "
                "receive {}",
                r, row.back(), received);
  }
  const auto first = static_cast<std::size_t>(axis_->rank * setup.num_here);
  known.here.assign(static_cast<std::size_t>(setup.num_here + 1), 0);
  for (std::size_t i = 0; i + 1 < known.here.size(); ++i) {
    known.here[i + 1] = known.here[i];
    for (int r = 0; r < e; ++r) known.here[i + 1] += row_of(known.counts, r, e)[first + i];
  }
  write_on_host<Index>(choices.kept[kOffsets], [&](std::span<Index> here) {
    std::copy(known.here.begin(), known.here.end(), here.begin());
  });
}

const ExpertParallelDispatch::Known& ExpertParallelDispatch::known(const Choices& choices) const {
  const auto found = known_.find(choices.kept[kOffsets].raw());
  ATOLL_CHECK(found != known_.end(), "rows of experts before begin()");
  return found->second;
}

TokenDispatch::Rows ExpertParallelDispatch::rows(const Choices& choices) const {
  // Where nothing has come, one row is there that belongs to no expert: ops take no empty tensors.
  return {std::max<std::int64_t>(1, known(choices).here.back()), choices.kept[kOffsets]};
}

void ExpertParallelDispatch::move(Run& run, const Choices& choices, Way way, const Tensor& sorted,
                                  const Tensor& rows) {
  const Known& all = known(choices);
  const auto count = [&](int rank, std::int64_t expert) -> std::int64_t {
    return row_of(all.counts, rank, axis_->size)[static_cast<std::size_t>(expert)];
  };
  const std::int64_t num_here = std::ssize(all.here) - 1;
  const bool to_experts = way == Way::kToExperts;
  std::vector<comm::Piece>& of_sorted = to_experts ? sends_ : receives_;
  std::vector<comm::Piece>& of_rows = to_experts ? receives_ : sends_;
  of_sorted.clear();
  of_rows.clear();
  for (std::int64_t i = 0; i < num_here; ++i) {
    std::int64_t at = all.here[static_cast<std::size_t>(i)];
    for (int r = 0; r < axis_->size; ++r) {
      // To this rank's expert i, of rank r's tokens.
      const std::int64_t come = count(r, axis_->rank * num_here + i);
      const Tensor here = rows.rows(at, at + come);
      at += come;
      // To rank r's expert i, of this rank's tokens.
      const std::int64_t expert = r * num_here + i;
      const std::int64_t begin = all.begins[static_cast<std::size_t>(expert)];
      const Tensor own = sorted.rows(begin, begin + count(axis_->rank, expert));
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
  const Index used = known(choices).here.back();
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
