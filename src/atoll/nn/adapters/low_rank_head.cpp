#include "atoll/nn/adapters/low_rank_head.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/block_diagonal/block_diagonal.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

using ops::Transpose;

struct LowRankHead::Room {
  Tensor b;       // s B: (V, r)
  Tensor logits;  // (rows, V) f32, then their gradient
  Tensor low;     // x A^T: (rows, r) f32
  Tensor dlow;    // of s B: (rows, r) f32
  Tensor db;      // of s B: (V, r) f32
};

LowRankHead::LowRankHead(std::unique_ptr<Layer> inner, Param a, Param b, double scale)
    : inner_(std::move(inner)),
      head_(dynamic_cast<const LinearCrossEntropy*>(inner_.get())),
      a_(std::move(a)),
      b_(std::move(b)),
      scale_(scale) {
  ATOLL_CHECK(head_ != nullptr && a_.spec.shape.dim(0) == b_.spec.shape.dim(1), "{}", a_.name);
}

Footprint LowRankHead::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  const Shape& w = weight().spec.shape;
  const std::int64_t rank = b_.spec.shape.dim(1);
  const std::int64_t rows = ops::logits_rows(x.shape.num_rows(), w.dim(0));
  const Spec logits = {Dtype::kF32, {rows, w.dim(0)}};
  const Spec low = {Dtype::kF32, {rows, rank}};
  const Spec part = {x.dtype, {rows, w.dim(1)}};
  std::size_t products = 0;
  const auto multiplies = [&](Transpose transpose, const Spec& left, const Spec& right) {
    products = std::max(products, ops::matmul_scratch_bytes(transpose, left, right));
  };
  multiplies(Transpose::kNT, part, weight().spec);
  multiplies(Transpose::kNT, part, a_.spec);
  multiplies(Transpose::kNT, low, b_.spec);
  multiplies(Transpose::kNN, logits, weight().spec);
  multiplies(Transpose::kNN, logits, b_.spec);
  multiplies(Transpose::kNN, low, a_.spec);
  multiplies(Transpose::kTN, low, part);
  multiplies(Transpose::kTN, logits, low);
  if (weight().is_packed()) {
    products = std::max(products, ops::matmul_packed_scratch_bytes(rows, w));
  }
  footprint.scratch_bytes = align_up(b_.spec.bytes()) + align_up(logits.bytes()) +
                            2 * align_up(low.bytes()) +
                            align_up(Spec{Dtype::kF32, b_.spec.shape}.bytes()) + products;
  return footprint;
}

void LowRankHead::forward(Run& run, const Pass& pass) {
  const std::int64_t rows = pass.x.shape().num_rows();
  const std::int64_t vocab = weight().spec.shape.dim(0);
  const std::int64_t rank = b_.spec.shape.dim(1);
  const std::int64_t chunk = ops::logits_rows(rows, vocab);
  Run inner = run;
  const Room room = {.b = inner.take_scratch(b_.spec),
                     .logits = inner.take_scratch({Dtype::kF32, {chunk, vocab}}),
                     .low = inner.take_scratch({Dtype::kF32, {chunk, rank}}),
                     .dlow = inner.take_scratch({Dtype::kF32, {chunk, rank}}),
                     .db = inner.take_scratch({Dtype::kF32, b_.spec.shape})};
  const ops::DiagonalBlock all[] = {{0, vocab}};
  ops::block_diagonal(inner, scale_, b_.value, all, room.b);
  const Tensor x = pass.x.reshaped({rows, pass.x.dim(-1)});
  const Tensor targets = pass.batch->targets.reshaped({rows});
  const Tensor loss = pass.y.reshaped({rows});
  const Tensor dx = run.training ? pass.kept[0].reshaped(x.shape()) : Tensor();
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, rows);
    pass_rows(inner, room, x.rows(begin, end), targets.rows(begin, end), loss.rows(begin, end),
              run.training ? dx.rows(begin, end) : Tensor(), begin == 0);
  }
  if (run.training) ops::block_diagonal_backward(inner, scale_, room.db, all, b_.grad);
}

void LowRankHead::pass_rows(Run& run, const Room& room, Tensor x, Tensor targets, Tensor loss,
                            Tensor dx, bool is_first) {
  const std::int64_t rows = x.dim(0);
  const Tensor logits = room.logits.rows(0, rows);
  const Tensor low = room.low.rows(0, rows);
  const Tensor dlow = room.dlow.rows(0, rows);
  if (weight().is_packed()) {
    ops::matmul_packed(run, x, weight().packed, logits);
  } else {
    ops::matmul(run, Transpose::kNT, x, weight().value, logits);
  }
  ops::matmul(run, Transpose::kNT, x, a_.value, low);
  ops::matmul(run, Transpose::kNT, low, room.b, logits, {}, /*accumulate=*/true);
  ops::cross_entropy_of_logits(run, /*factor=*/1, logits, targets, loss, dx.defined());
  if (!dx.defined()) return;
  if (weight().is_packed()) {
    ops::matmul_packed_backward(run, logits, weight().packed, dx);
  } else {
    ops::matmul(run, Transpose::kNN, logits, weight().value, dx);
  }
  ops::matmul(run, Transpose::kNN, logits, room.b, dlow);
  ops::matmul(run, Transpose::kNN, dlow, a_.value, dx, {}, /*accumulate=*/true);
  ops::matmul(run, Transpose::kTN, dlow, x, a_.grad, {}, /*accumulate=*/true);
  ops::matmul(run, Transpose::kTN, logits, low, room.db, {}, /*accumulate=*/!is_first);
}

void LowRankHead::visit(ParamVisitor& visitor) {
  inner_->visit(visitor);
  visitor.param(a_);
  visitor.param(b_);
}

}  // namespace atl::nn
