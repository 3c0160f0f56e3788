#include "atoll/nn/linear.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/fp8/fp8.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

using ops::Transpose;

Linear::Linear(Param weight, Param bias, DeviceKind device)
    : weight_(std::move(weight)), bias_(std::move(bias)), device_(device) {
  ATOLL_CHECK(weight_.spec.shape.rank() == 2, "{}", weight_.spec.to_string());
}

void Linear::add_adapter(Param a, Param b, std::vector<ops::DiagonalBlock> blocks, double scale) {
  ATOLL_CHECK(!has_adapter() && !blocks.empty(), "{}", weight_.name);
  a_ = std::move(a);
  b_ = std::move(b);
  blocks_ = std::move(blocks);
  scale_ = scale;
}

void Linear::drop_adapter_input(double p, int index) {
  ATOLL_CHECK(has_adapter() && p >= 0 && p < 1, "{}: {}", weight_.name, p);
  dropout_ = p;
  dropout_index_ = index;
}

void Linear::observe_input(std::function<void(const Tensor& x)> observer) {
  observer_ = std::move(observer);
}

void Linear::use_fp8(ops::Fp8Scaling scaling) {
  ATOLL_CHECK(weight_.spec.dtype == Dtype::kBf16 && !weight_.as_int8, "{} is {}", weight_.name,
              weight_.spec.to_string());
  fp8_ = scaling;
}

void Linear::check_fp8(const Spec& x) const {
  const Shape& w = weight_.spec.shape;
  for (const auto& [size, what] : {std::pair{w.dim(0), "rows"}, {w.dim(1), "columns"}}) {
    if (size % ops::kFp8Multiple == 0) continue;
    throw user_error(
        "{} has {} {} on a rank; products in 8 bits take multiples of {}: change the model's "
        "widths or parallel.tp, or use --train.fp8=off",
        weight_.name, size, what, ops::kFp8Multiple);
  }
  if (x.shape.num_rows() % ops::kFp8Multiple == 0) return;
  throw user_error(
      "{} gets {} tokens at a time; products in 8 bits take multiples of {}: change "
      "train.micro_batch, train.context or parallel.cp, or use --train.fp8=off",
      weight_.name, x.shape.num_rows(), ops::kFp8Multiple);
}

Spec Linear::spread_spec() const {
  return {b_.spec.dtype, {weight_.spec.shape.dim(0), a_.spec.shape.dim(0)}};
}

Tensor Linear::spread_b(Run& run) const {
  const Tensor spread = run.take_scratch(spread_spec());
  ops::block_diagonal(run, scale_, b_.value, blocks_, spread);
  return spread;
}

Tensor Linear::adapter_input(Run& run, const Tensor& x) const {
  if (!run.training || dropout_ == 0) return x;
  const Tensor dropped = run.take_scratch(x.spec());
  ops::dropout(run, dropout_, dropout_index_, x, dropped);
  return dropped;
}

Footprint Linear::plan(Spec x) const {
  const Spec& w = weight_.spec;
  ATOLL_CHECK(x.shape.dim(-1) == w.shape.dim(1) && x.dtype == w.dtype, "{} of {} applied to {}",
              weight_.name, w.to_string(), x.to_string());
  Footprint footprint;
  const Spec y = x.with_last(w.shape.dim(0));
  footprint.y = y;
  footprint.adds_residual = true;
  const bool any_weight = !weight_.frozen || has_adapter() || (has_bias() && !bias_.frozen);
  footprint.need_x = any_weight ? kForWeight : 0U;
  footprint.need_dy = kForInput | (any_weight ? kForWeight : 0U);
  footprint.scratch_bytes = std::max({ops::matmul_scratch_bytes(Transpose::kNT, x, w, device_),
                                      ops::matmul_scratch_bytes(Transpose::kNN, y, w, device_),
                                      ops::matmul_scratch_bytes(Transpose::kTN, y, x, device_),
                                      has_bias() ? ops::column_sum_scratch_bytes(y) : 0});
  if (weight_.as_bf16) {
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes,
                 ops::matmul_scratch_bytes(Transpose::kNT, x, {Dtype::kBf16, w.shape}, device_));
  }
  if (weight_.as_int8) {
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes, ops::matmul_int8_scratch_bytes(x, w.shape));
  }
  if (weight_.is_packed()) {
    ATOLL_CHECK(weight_.frozen && !fp8_, "{} is packed", weight_.name);
    footprint.scratch_bytes = std::max(
        footprint.scratch_bytes, ops::matmul_packed_scratch_bytes(x.shape.num_rows(), w.shape));
  }
  if (fp8_) {
    check_fp8(x);
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes, ops::linear_fp8_scratch_bytes(x, w));
  }
  if (has_adapter()) {
    const Spec spread = spread_spec();
    const Spec low = x.with_last(spread.shape.dim(1));
    const std::size_t held = align_up(spread.bytes()) + align_up(low.bytes()) +
                             (dropout_ > 0 ? align_up(x.bytes()) : 0) +
                             align_up(std::max({x.bytes(), y.bytes(), 2 * spread.bytes()}));
    const std::size_t products =
        std::max({ops::matmul_scratch_bytes(Transpose::kNT, x, a_.spec, device_),
                  ops::matmul_scratch_bytes(Transpose::kNT, low, spread, device_),
                  ops::matmul_scratch_bytes(Transpose::kNN, y, spread, device_),
                  ops::matmul_scratch_bytes(Transpose::kNN, low, a_.spec, device_),
                  ops::matmul_scratch_bytes(Transpose::kTN, low, x, device_),
                  ops::matmul_scratch_bytes(Transpose::kTN, y, low, device_)});
    footprint.scratch_bytes = std::max(footprint.scratch_bytes, held + products);
  }
  return footprint;
}

void Linear::forward(Run& run, const Pass& pass) {
  if (observer_) observer_(pass.x);
  const bool is_plain = !weight_.as_int8 && !weight_.is_packed() && !has_adapter();
  if (weight_.as_int8) {
    ops::matmul_int8(run, pass.x, weight_.int8, pass.y, bias_.value);
  } else if (weight_.is_packed()) {
    ops::matmul_packed(run, pass.x, weight_.packed, pass.y, bias_.value);
  } else if (fp8_) {
    const Tensor residual = is_plain ? pass.residual : Tensor();
    ops::linear_fp8(run, *fp8_, pass.x, weight_.value, pass.y, bias_.value, residual);
  } else if (is_plain && pass.residual.defined()) {
    ops::matmul_add(run, Transpose::kNT, pass.x, weight_.value, pass.residual, pass.y, bias_.value);
  } else {
    ops::matmul(run, Transpose::kNT, pass.x, weight_.value, pass.y, bias_.value);
  }
  if (has_adapter()) add_low_rank(run, pass);
  if (!is_plain && pass.residual.defined()) ops::add(run, pass.residual, pass.y, pass.y);
}

void Linear::forward_gelu(Run& run, ops::Gelu kind, Tensor x, Tensor hidden, Tensor h) {
  if (!weight_.as_int8 && !weight_.is_packed() && !has_adapter() && !fp8_) {
    if (observer_) observer_(x);
    return ops::linear_gelu(run, kind, x, weight_.value, bias_.value, hidden, h);
  }
  forward(run, {.x = x, .y = hidden});
  ops::gelu_forward(run, kind, hidden, h);
}

void Linear::add_low_rank(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor low = inner.take_scratch(pass.x.spec().with_last(spread.dim(1)));  // x A^T
  const Tensor x = adapter_input(inner, pass.x);
  const Tensor change = inner.take_scratch(pass.y.spec());
  ops::matmul(inner, Transpose::kNT, x, a_.value, low);
  ops::matmul(inner, Transpose::kNT, low, spread, change);
  ops::add(inner, pass.y, change, pass.y);
}

void Linear::backward_input(Run& run, const Pass& pass) {
  if (weight_.is_packed()) {
    ops::matmul_packed_backward(run, pass.dy, weight_.packed, pass.dx);
  } else if (fp8_) {
    ops::linear_fp8_backward_input(run, *fp8_, pass.dy, weight_.value, pass.dx);
  } else {
    ops::matmul(run, Transpose::kNN, pass.dy, weight_.value, pass.dx);
  }
  if (!has_adapter()) return;
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor dlow = inner.take_scratch(pass.dy.spec().with_last(spread.dim(1)));
  const Tensor change = inner.take_scratch(pass.dx.spec());
  ops::matmul(inner, Transpose::kNN, pass.dy, spread, dlow);
  ops::matmul(inner, Transpose::kNN, dlow, a_.value, change);
  if (dropout_ > 0) ops::dropout(inner, dropout_, dropout_index_, change, change);
  ops::add(inner, pass.dx, change, pass.dx);
}

// The low-rank product and its gradient are made again here: that costs r / out of the layer's
// work, and keeps callers that fuse Linears free of tensors to carry for them.
void Linear::backward_weight(Run& run, const Pass& pass) {
  backward_weight(run, pass, {});
}

void Linear::backward_weight(Run& run, const Pass& pass, Tensor bias_sums) {
  if (!weight_.frozen && fp8_) {
    ops::linear_fp8_backward_weight(run, *fp8_, pass.dy, pass.x, weight_.grad);
  } else if (!weight_.frozen) {
    ops::matmul(run, Transpose::kTN, pass.dy, pass.x, weight_.grad, {}, /*accumulate=*/true);
  }
  if (bias_sums.defined())
    ops::add_column_sums(run, bias_sums, bias_.grad);
  else if (trains_bias())
    ops::column_sum(run, pass.dy, bias_.grad);
  if (!has_adapter()) return;
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor low = inner.take_scratch(pass.x.spec().with_last(spread.dim(1)));
  const Tensor x = adapter_input(inner, pass.x);
  ops::matmul(inner, Transpose::kNN, pass.dy, spread, low);
  ops::matmul(inner, Transpose::kTN, low, x, a_.grad, {}, /*accumulate=*/true);
  ops::matmul(inner, Transpose::kNT, x, a_.value, low);
  const Tensor dspread = inner.take_scratch(spread.spec().in_compute_dtype());
  ops::matmul(inner, Transpose::kTN, pass.dy, low, dspread);
  ops::block_diagonal_backward(inner, scale_, dspread, blocks_, b_.grad);
}

void Linear::visit(ParamVisitor& visitor) {
  visitor.linear(*this);
  visitor.param(weight_);
  if (has_bias()) visitor.param(bias_);
  if (!has_adapter()) return;
  visitor.param(a_);
  visitor.param(b_);
}

}  // namespace atl::nn
