#include "atoll/nn/adapters/low_rank_adapter.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/dora/dora.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::nn {

using ops::Transpose;

LowRankAdapter::LowRankAdapter(Param a, Param b, std::vector<ops::DiagonalBlock> blocks,
                               double scale, std::int64_t rows, Param magnitude)
    : a_(std::move(a)),
      b_(std::move(b)),
      magnitude_(std::move(magnitude)),
      blocks_(std::move(blocks)),
      scale_(scale),
      rows_(rows) {
  ATOLL_CHECK(!blocks_.empty(), "{}", a_.name);
}

Spec LowRankAdapter::spread_spec() const {
  return {b_.spec.dtype, {rows_, a_.spec.shape.dim(0)}};
}

Tensor LowRankAdapter::spread_b(Run& run) const {
  const Tensor spread = run.take_scratch(spread_spec());
  ops::block_diagonal(run, scale_, b_.value, blocks_, spread);
  return spread;
}

void LowRankAdapter::forward(Run& run, Tensor x, Tensor change) const {
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor low = inner.take_scratch(x.spec().with_last(spread.dim(1)));  // x A^T
  ops::matmul(inner, Transpose::kNT, x, a_.value, low);
  ops::matmul(inner, Transpose::kNT, low, spread, change);
}

void LowRankAdapter::backward_input(Run& run, Tensor dy, Tensor dx) const {
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor dlow = inner.take_scratch(dy.spec().with_last(spread.dim(1)));
  ops::matmul(inner, Transpose::kNN, dy, spread, dlow);
  ops::matmul(inner, Transpose::kNN, dlow, a_.value, dx);
}

void LowRankAdapter::backward_weight(Run& run, Tensor x, Tensor dy) {
  Run inner = run;
  const Tensor spread = spread_b(inner);
  const Tensor low = inner.take_scratch(x.spec().with_last(spread.dim(1)));
  ops::matmul(inner, Transpose::kNN, dy, spread, low);
  ops::matmul(inner, Transpose::kTN, low, x, a_.grad, {}, /*accumulate=*/true);
  ops::matmul(inner, Transpose::kNT, x, a_.value, low);
  const Tensor dspread = inner.take_scratch(spread.spec().in_compute_dtype());
  ops::matmul(inner, Transpose::kTN, dy, low, dspread);
  ops::block_diagonal_backward(inner, scale_, dspread, blocks_, b_.grad);
}

void LowRankAdapter::weight(Run& run, Tensor change) const {
  Run inner = run;
  const Tensor spread = spread_b(inner);
  ops::matmul(inner, Transpose::kNN, spread, a_.value, change);
}

void LowRankAdapter::gain(Run& run, Tensor w, Tensor change, bool resets, Tensor gain) const {
  ops::dora_gain(run, w, change, magnitude_.value, blocks_, resets, gain);
}

void LowRankAdapter::backward_gain(Run& run, Tensor dy, Tensor u, Tensor gain) {
  ops::dora_backward(run, dy, u, gain, blocks_, magnitude_.grad);
}

std::size_t LowRankAdapter::scratch_bytes(const Spec& x, DeviceKind device) const {
  const Spec y = x.with_last(rows_);
  const Spec spread = spread_spec();
  const Spec low = x.with_last(spread.shape.dim(1));
  const std::size_t held = align_up(spread.bytes()) + align_up(low.bytes()) +
                           align_up(spread.in_compute_dtype().bytes());
  const std::size_t products =
      std::max({ops::matmul_scratch_bytes(Transpose::kNT, x, a_.spec, device),
                ops::matmul_scratch_bytes(Transpose::kNT, low, spread, device),
                ops::matmul_scratch_bytes(Transpose::kNN, y, spread, device),
                ops::matmul_scratch_bytes(Transpose::kNN, low, a_.spec, device),
                ops::matmul_scratch_bytes(Transpose::kTN, low, x, device),
                ops::matmul_scratch_bytes(Transpose::kTN, y, low, device)});
  if (!has_magnitude()) return held + products;
  return held +
         std::max(products, ops::matmul_scratch_bytes(Transpose::kNN, spread, a_.spec, device));
}

void LowRankAdapter::visit(ParamVisitor& visitor) {
  visitor.param(a_);
  visitor.param(b_);
  if (has_magnitude()) visitor.param(magnitude_);
}

}  // namespace atl::nn
