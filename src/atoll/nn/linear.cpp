#include "atoll/nn/linear.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/fp8/fp8.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/low_rank_rows.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

using ops::Transpose;

Linear::Linear(Param weight, Param bias, DeviceKind device)
    : weight_(std::move(weight)), bias_(std::move(bias)), device_(device) {
  ATOLL_CHECK(weight_.spec.shape.rank() == 2, "{}", weight_.spec.to_string());
}

void Linear::add_adapter(Param a, Param b, std::vector<ops::DiagonalBlock> blocks, double scale,
                         Param magnitude) {
  const bool has_magnitude = !magnitude.name.empty();
  ATOLL_CHECK(adapters_.empty() || has_magnitude == has_magnitudes(), "{}", weight_.name);
  ATOLL_CHECK(!has_magnitude || weight_.frozen, "{}", weight_.name);
  adapters_.emplace_back(std::move(a), std::move(b), std::move(blocks), scale,
                         weight_.spec.shape.dim(0), std::move(magnitude));
}

void Linear::drop_adapter_input(double p, int index) {
  ATOLL_CHECK(has_adapter() && p >= 0 && p < 1, "{}: {}", weight_.name, p);
  dropout_ = p;
  dropout_index_ = index;
}

void Linear::observe_input(std::function<void(const Tensor& x)> observer) {
  observer_ = std::move(observer);
}

void Linear::serve_adapters(const ServedAdapters* adapters) {
  served_ = adapters;
}

void Linear::serve_factors(std::size_t adapter, ServedFactors factors) {
  ATOLL_CHECK(served_ != nullptr, "{}", weight_.name);
  ATOLL_CHECK(!factors.a.defined() || factors.a.dim(0) <= served_->max_rank, "{}: rank {} of {}",
              weight_.name, factors.a.dim(0), served_->max_rank);
  if (served_factors_.size() <= adapter) served_factors_.resize(adapter + 1);
  served_factors_[adapter] = std::move(factors);
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

Tensor Linear::adapter_input(Run& run, const Tensor& x) const {
  if (!drops(run)) return x;
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
    if (has_magnitudes()) {
      throw user_error(
          "lora.dora: {} stays in the bits of its file, and the lengths of its rows need its "
          "numbers; use model.held_as=wide, or leave out lora.dora",
          weight_.name);
    }
    footprint.scratch_bytes = std::max(
        footprint.scratch_bytes, ops::matmul_packed_scratch_bytes(x.shape.num_rows(), w.shape));
  }
  if (fp8_) {
    check_fp8(x);
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes, ops::linear_fp8_scratch_bytes(x, w));
  }
  if (has_adapter()) {
    const std::size_t beside = has_magnitudes() ? footprint.scratch_bytes : 0;
    footprint.scratch_bytes = std::max(footprint.scratch_bytes, adapter_scratch_bytes(x) + beside);
  }
  if (served_ != nullptr) {
    footprint.scratch_bytes = std::max(footprint.scratch_bytes, served_scratch_bytes(x, y));
  }
  return footprint;
}

// Scratch of the adapters' three passes, one after the other; DoRA's products with W come beside.
std::size_t Linear::adapter_scratch_bytes(const Spec& x) const {
  const Spec y = x.with_last(weight_.spec.shape.dim(0));
  std::size_t adapters = 0;
  for (const LowRankAdapter& adapter : adapters_) {
    adapters = std::max(adapters, adapter.scratch_bytes(x, device_));
  }
  const std::size_t one = align_up(std::max(x.bytes(), y.bytes()));
  const std::size_t held = one + (dropout_ > 0 ? align_up(x.bytes()) : 0) + adapters;
  if (!has_magnitudes()) return held;
  const Spec gain = {compute_dtype(x.dtype), {2, y.shape.dim(-1)}};
  return held + 2 * one + align_up(gain.bytes()) + align_up(weight_.spec.bytes());
}

std::size_t Linear::served_scratch_bytes(const Spec& x, const Spec& /*y*/) const {
  return align_up(x.with_last(served_->max_rank).bytes());
}

void Linear::forward(Run& run, const Pass& pass) {
  if (observer_) observer_(pass.x);
  if (has_magnitudes()) return forward_dora(run, pass);
  const bool is_plain = !weight_.as_int8 && !weight_.is_packed() && !has_adapter() && !is_serving();
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
  if (has_adapter()) {
    Run inner = run;
    add_low_rank(inner, adapter_input(inner, pass.x), pass.y);
  }
  if (is_serving()) add_served(run, pass);
  if (!is_plain && pass.residual.defined()) ops::add(run, pass.residual, pass.y, pass.y);
}

void Linear::forward_gelu(Run& run, ops::Gelu kind, Tensor x, Tensor hidden, Tensor h) {
  const bool is_plain = !weight_.as_int8 && !weight_.is_packed() && !has_adapter() && !is_serving();
  if (is_plain && !fp8_) {
    if (observer_) observer_(x);
    return ops::linear_gelu(run, kind, x, weight_.value, bias_.value, hidden, h);
  }
  forward(run, {.x = x, .y = hidden});
  ops::gelu_forward(run, kind, hidden, h);
}

void Linear::add_low_rank(Run& run, const Tensor& x, const Tensor& y) {
  Run inner = run;
  const Tensor change = inner.take_scratch(y.spec());
  for (const LowRankAdapter& adapter : adapters_) {
    adapter.forward(inner, x, change);
    ops::add(inner, y, change, y);
  }
}

void Linear::multiply(Run& run, const Tensor& x, const Tensor& y, const Tensor& bias) {
  if (fp8_) return ops::linear_fp8(run, *fp8_, x, weight_.value, y, bias, {});
  ops::matmul(run, Transpose::kNT, x, weight_.value, y, bias);
}

void Linear::multiply_back(Run& run, const Tensor& dy, const Tensor& dx) {
  if (weight_.is_packed()) return ops::matmul_packed_backward(run, dy, weight_.packed, dx);
  if (fp8_) return ops::linear_fp8_backward_input(run, *fp8_, dy, weight_.value, dx);
  ops::matmul(run, Transpose::kNN, dy, weight_.value, dx);
}

void Linear::add_served(Run& run, const Pass& pass) {
  const auto as_rows = [](const Tensor& tensor) {
    return tensor.reshaped({tensor.spec().shape.num_rows(), tensor.dim(-1)});
  };
  std::vector<ops::LowRankRows> parts;
  for (const AdapterRows& rows : served_->rows) {
    if (rows.adapter >= served_factors_.size()) continue;
    const ServedFactors& factors = served_factors_[rows.adapter];
    if (factors.a.defined()) parts.push_back({rows.begin, rows.count, factors.a, factors.b});
  }
  ops::add_low_rank_rows(run, parts, as_rows(pass.x), as_rows(pass.y));
}

void Linear::backward_input(Run& run, const Pass& pass) {
  if (has_magnitudes()) return backward_input_dora(run, pass);
  multiply_back(run, pass.dy, pass.dx);
  Run inner = run;
  for (const LowRankAdapter& adapter : adapters_) {
    Run one = inner;
    const Tensor change = one.take_scratch(pass.dx.spec());
    adapter.backward_input(one, pass.dy, change);
    if (dropout_ > 0) ops::dropout(one, dropout_, dropout_index_, change, change);
    ops::add(one, pass.dx, change, pass.dx);
  }
}

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
  if (has_magnitudes()) return backward_weight_dora(run, pass);
  Run inner = run;
  const Tensor x = adapter_input(inner, pass.x);
  for (LowRankAdapter& adapter : adapters_) adapter.backward_weight(inner, x, pass.dy);
}

void Linear::visit(ParamVisitor& visitor) {
  visitor.linear(*this);
  visitor.param(weight_);
  if (has_bias()) visitor.param(bias_);
  for (LowRankAdapter& adapter : adapters_) adapter.visit(visitor);
}

}  // namespace atl::nn
