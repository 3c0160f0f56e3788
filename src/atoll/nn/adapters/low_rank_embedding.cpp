#include "atoll/nn/adapters/low_rank_embedding.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/block_diagonal/block_diagonal.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::nn {

using ops::Transpose;

LowRankEmbedding::LowRankEmbedding(std::unique_ptr<Layer> inner, Param a, Param b, double scale)
    : inner_(std::move(inner)), a_(std::move(a)), b_(std::move(b)), scale_(scale) {
  ATOLL_CHECK(a_.spec.shape.dim(1) == b_.spec.shape.dim(1), "{}", a_.name);
}

Tensor LowRankEmbedding::scaled_b(Run& run) const {
  const Tensor scaled = run.take_scratch(b_.spec);
  const ops::DiagonalBlock all[] = {{0, b_.spec.shape.dim(0)}};
  ops::block_diagonal(run, scale_, b_.value, all, scaled);
  return scaled;
}

Footprint LowRankEmbedding::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  footprint.need_x |= kForWeight;
  footprint.need_dy |= kForWeight;
  const Spec y = footprint.y;
  const Spec low = y.with_last(b_.spec.shape.dim(1));
  const std::size_t held = align_up(b_.spec.bytes()) + align_up(low.bytes()) +
                           align_up(std::max(y.bytes(), b_.spec.in_compute_dtype().bytes()));
  // A layer is not told where it will compute: enough for either.
  const DeviceKind kinds[] = {DeviceKind::kCpu, DeviceKind::kCuda};
  std::size_t products = ops::embedding_backward_scratch_bytes(x.shape.num_elements());
  for (const DeviceKind kind : kinds) {
    products = std::max({products, ops::matmul_scratch_bytes(Transpose::kNT, low, b_.spec, kind),
                         ops::matmul_scratch_bytes(Transpose::kNN, y, b_.spec, kind),
                         ops::matmul_scratch_bytes(Transpose::kTN, y, low, kind)});
  }
  footprint.scratch_bytes = std::max(footprint.scratch_bytes, held + products);
  return footprint;
}

void LowRankEmbedding::forward(Run& run, const Pass& pass) {
  inner_->forward(run, pass);
  Run inner = run;
  const Tensor b = scaled_b(inner);
  const Tensor low = inner.take_scratch(pass.y.spec().with_last(b.dim(1)));  // A[x]
  const Tensor change = inner.take_scratch(pass.y.spec());
  ops::embedding_forward(inner, pass.x, a_.value, low);
  ops::matmul(inner, Transpose::kNT, low, b, change);
  ops::add(inner, pass.y, change, pass.y);
}

void LowRankEmbedding::backward_weight(Run& run, const Pass& pass) {
  inner_->backward_weight(run, pass);
  Run inner = run;
  const Tensor b = scaled_b(inner);
  const Tensor low = inner.take_scratch(pass.dy.spec().with_last(b.dim(1)));
  ops::matmul(inner, Transpose::kNN, pass.dy, b, low);
  ops::embedding_backward(inner, pass.x, low, a_.grad);
  ops::embedding_forward(inner, pass.x, a_.value, low);
  const Tensor db = inner.take_scratch(b.spec().in_compute_dtype());
  ops::matmul(inner, Transpose::kTN, pass.dy, low, db);
  const ops::DiagonalBlock all[] = {{0, b.dim(0)}};
  ops::block_diagonal_backward(inner, scale_, db, all, b_.grad);
}

void LowRankEmbedding::visit(ParamVisitor& visitor) {
  inner_->visit(visitor);
  visitor.param(a_);
  visitor.param(b_);
}

}  // namespace atl::nn
