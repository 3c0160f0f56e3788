#include "atoll/nn/adapters/expert_adapter.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/grouped_matmul.h"

namespace atl::nn {

using ops::Transpose;

ExpertAdapter::ExpertAdapter(Param a, Param b, std::int64_t num_experts, double scale,
                             Columns columns)
    : a_(std::move(a)),
      b_(std::move(b)),
      num_experts_(num_experts),
      scale_(scale),
      columns_(std::move(columns)) {
  ATOLL_CHECK(
      a_.spec.shape.dim(0) == b_.spec.shape.dim(0) && a_.spec.shape.dim(0) % num_experts_ == 0,
      "{}: {} and {} of {} experts", a_.name, a_.spec.to_string(), b_.spec.to_string(),
      num_experts_);
}

Spec ExpertAdapter::ordered_spec(const std::vector<std::int64_t>& columns) const {
  return {a_.spec.dtype, {a_.spec.shape.dim(0), std::ssize(columns)}};
}

ExpertAdapter::Ordered ExpertAdapter::take_ordered(Run& run) const {
  const Ordered ordered = {run.take_scratch(ordered_spec(columns_.in)),
                           run.take_scratch(ordered_spec(columns_.out))};
  ops::order_factor(run, 1, order_of_a(), a_.value, ordered.a);
  ops::order_factor(run, scale_, order_of_b(), b_.value, ordered.b);
  return ordered;
}

void ExpertAdapter::forward(Run& run, const Tensor& x, const Tensor& offsets,
                            const Tensor& y) const {
  Run inner = run;
  const Ordered factors = take_ordered(inner);
  const Tensor low = inner.take_scratch(x.spec().with_last(rank()));
  const Tensor change = inner.take_scratch(y.spec());
  ops::grouped_matmul(inner, Transpose::kNT, x, factors.a, offsets, low);
  ops::grouped_matmul(inner, Transpose::kNN, low, factors.b, offsets, change);
  ops::add(inner, y, change, y);
}

void ExpertAdapter::backward_input(Run& run, const Tensor& dy, const Tensor& offsets,
                                   const Tensor& dx) const {
  Run inner = run;
  const Ordered factors = take_ordered(inner);
  const Tensor dlow = inner.take_scratch(dy.spec().with_last(rank()));
  const Tensor change = inner.take_scratch(dx.spec());
  ops::grouped_matmul(inner, Transpose::kNT, dy, factors.b, offsets, dlow);
  ops::grouped_matmul(inner, Transpose::kNN, dlow, factors.a, offsets, change);
  ops::add(inner, dx, change, dx);
}

void ExpertAdapter::backward_weight(Run& run, const Tensor& x, const Tensor& dy,
                                    const Tensor& offsets) {
  Run inner = run;
  const Ordered factors = take_ordered(inner);
  const Tensor low = inner.take_scratch(x.spec().with_last(rank()));
  const Tensor da = inner.take_scratch(factors.a.spec().in_compute_dtype());
  const Tensor db = inner.take_scratch(factors.b.spec().in_compute_dtype());
  ops::fill_zero(inner, da);
  ops::fill_zero(inner, db);
  ops::grouped_matmul(inner, Transpose::kNT, x, factors.a, offsets, low);
  ops::grouped_matmul_tn(inner, low, dy, offsets, db);
  ops::grouped_matmul(inner, Transpose::kNT, dy, factors.b, offsets, low);
  ops::grouped_matmul_tn(inner, low, x, offsets, da);
  ops::order_factor_backward(inner, 1, order_of_a(), da, a_.grad);
  ops::order_factor_backward(inner, scale_, order_of_b(), db, b_.grad);
}

std::size_t ExpertAdapter::scratch_bytes(std::int64_t rows) const {
  const Dtype dtype = a_.spec.dtype;
  const Spec a = ordered_spec(columns_.in), b = ordered_spec(columns_.out);
  const Spec x = {dtype, {rows, a.shape.dim(1)}}, y = {dtype, {rows, b.shape.dim(1)}};
  const Spec low = {dtype, {rows, rank()}};
  const std::size_t changes = align_up(std::max(x.bytes(), y.bytes()));
  const std::size_t gradients =
      align_up(a.in_compute_dtype().bytes()) + align_up(b.in_compute_dtype().bytes());
  return align_up(a.bytes()) + align_up(b.bytes()) + align_up(low.bytes()) +
         std::max(changes, gradients) +
         std::max(ops::grouped_matmul_scratch_bytes(low, x, a, num_experts_),
                  ops::grouped_matmul_scratch_bytes(low, y, b, num_experts_));
}

void ExpertAdapter::visit(ParamVisitor& visitor) {
  visitor.param(a_);
  visitor.param(b_);
}

std::vector<std::int64_t> rows_in_stack(const Param& weight, std::int64_t num_experts) {
  const Param& whole = whole_param(weight);
  const std::int64_t rows = whole.spec.shape.dim(0) / num_experts;
  const bool alternate = whole.files.front().name.ends_with(".gate_up_proj.gate.weight");
  std::vector<Slice::Rows> stretches = {{0, rows}};
  if (weight.cut) stretches = weight.cut->slices[static_cast<std::size_t>(weight.cut->rank)].rows;
  std::vector<std::int64_t> found;
  for (const Slice::Rows& stretch : stretches) {
    // Experts have their rows one below the other, and all have the same of them.
    for (std::int64_t row = stretch.begin; row < std::min(stretch.begin + stretch.count, rows);
         ++row) {
      const std::int64_t half = rows / 2;
      found.push_back(alternate ? 2 * (row % half) + row / half : row);
    }
  }
  return found;
}

}  // namespace atl::nn
