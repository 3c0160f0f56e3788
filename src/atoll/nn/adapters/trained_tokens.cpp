#include "atoll/nn/adapters/trained_tokens.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"
#include "atoll/ops/token_rows/token_rows.h"

namespace atl::nn {

using ops::Transpose;

namespace {

Tensor flat(const Tensor& x) {
  return x.reshaped({x.shape().num_rows(), x.dim(-1)});
}

void show(ParamVisitor& visitor, TrainedRows& rows) {
  if (auto* told = dynamic_cast<TrainedRowsVisitor*>(&visitor)) told->trained_rows(rows);
  visitor.param(rows.rows);
}

}  // namespace

TrainedTokens::TrainedTokens(std::unique_ptr<Layer> inner, TrainedRows rows, double scale,
                             const Param* positions)
    : inner_(std::move(inner)), rows_(std::move(rows)), scale_(scale), positions_(positions) {
  ATOLL_CHECK_EQ(rows_.rows.spec.shape.dim(0), std::ssize(rows_.tokens));
}

Footprint TrainedTokens::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  footprint.need_x |= kForWeight;
  footprint.need_dy |= kForWeight;
  if (positions_ != nullptr) {
    footprint.scratch_bytes = std::max(footprint.scratch_bytes, align_up(footprint.y.bytes()));
  }
  return footprint;
}

void TrainedTokens::forward(Run& run, const Pass& pass) {
  inner_->forward(run, pass);
  Run inner = run;
  Tensor beside;
  if (positions_ != nullptr) {
    beside = inner.take_scratch(pass.y.spec());
    ops::fill_zero(inner, beside);
    const Tensor positions = pass.batch == nullptr ? Tensor() : pass.batch->positions;
    ops::position_embedding_forward(inner, positions, positions_->value, beside);
    beside = flat(beside);
  }
  ops::place_token_rows(inner, scale_, rows_.slots, pass.x, rows_.rows.value, beside, flat(pass.y));
}

void TrainedTokens::backward_weight(Run& run, const Pass& pass) {
  inner_->backward_weight(run, pass);
  ops::place_token_rows_backward(run, scale_, rows_.slots, pass.x, flat(pass.dy), rows_.rows.grad);
}

void TrainedTokens::visit(ParamVisitor& visitor) {
  inner_->visit(visitor);
  show(visitor, rows_);
}

TrainedTokensHead::TrainedTokensHead(std::unique_ptr<Layer> inner, TrainedRows* rows)
    : inner_(std::move(inner)),
      head_(dynamic_cast<const LinearCrossEntropy*>(inner_.get())),
      rows_(rows) {
  ATOLL_CHECK(head_ != nullptr, "{}", rows->rows.name);
}

Footprint TrainedTokensHead::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  const Spec& w = weight().spec;
  const Spec& own_rows = rows_->rows.spec;
  const std::int64_t rows = ops::logits_rows(x.shape.num_rows(), w.shape.dim(0));
  const Spec logits = {compute_dtype(x.dtype), {rows, w.shape.dim(0)}};
  const Spec own = logits.with_last(own_rows.shape.dim(0));
  const Spec part = {x.dtype, {rows, w.shape.dim(1)}};
  std::size_t products = std::max({ops::matmul_scratch_bytes(Transpose::kNT, part, w),
                                   ops::matmul_scratch_bytes(Transpose::kNN, logits, w),
                                   ops::matmul_scratch_bytes(Transpose::kNT, part, own_rows),
                                   ops::matmul_scratch_bytes(Transpose::kNN, own, own_rows),
                                   ops::matmul_scratch_bytes(Transpose::kTN, own, part)});
  if (weight().is_packed()) {
    products = std::max(products, ops::matmul_packed_scratch_bytes(rows, w.shape));
  }
  footprint.scratch_bytes = align_up(logits.bytes()) + align_up(own.bytes()) + products;
  return footprint;
}

void TrainedTokensHead::forward(Run& run, const Pass& pass) {
  const std::int64_t rows = pass.x.shape().num_rows();
  const std::int64_t vocab = weight().spec.shape.dim(0);
  const std::int64_t chunk = ops::logits_rows(rows, vocab);
  const Dtype compute = compute_dtype(pass.x.dtype());
  Run inner = run;
  const Room room = {.logits = inner.take_scratch({compute, {chunk, vocab}}),
                     .own = inner.take_scratch({compute, {chunk, std::ssize(rows_->tokens)}})};
  const Tensor x = flat(pass.x);
  const Tensor targets = pass.batch->targets.reshaped({rows});
  const Tensor loss = pass.y.reshaped({rows});
  const Tensor dx = run.training ? pass.kept[0].reshaped(x.shape()) : Tensor();
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, rows);
    pass_rows(inner, room, x.rows(begin, end), targets.rows(begin, end), loss.rows(begin, end),
              run.training ? dx.rows(begin, end) : Tensor());
  }
}

// The trained tokens' logits stand in place of the table's, and so their gradient goes to their
// rows alone.
void TrainedTokensHead::pass_rows(Run& run, const Room& room, const Tensor& x,
                                  const Tensor& targets, const Tensor& loss, const Tensor& dx) {
  const Tensor logits = room.logits.rows(0, x.dim(0));
  const Tensor own = room.own.rows(0, x.dim(0));
  const Param& trained = rows_->rows;
  if (weight().is_packed()) {
    ops::matmul_packed(run, x, weight().packed, logits);
  } else {
    ops::matmul(run, Transpose::kNT, x, weight().value, logits);
  }
  ops::matmul(run, Transpose::kNT, x, trained.value, own);
  ops::put_columns(run, rows_->tokens, own, logits);
  ops::cross_entropy_of_logits(run, /*factor=*/1, logits, targets, loss, dx.defined());
  if (!dx.defined()) return;
  ops::take_columns(run, rows_->tokens, logits, own);
  if (weight().is_packed()) {
    ops::matmul_packed_backward(run, logits, weight().packed, dx);
  } else {
    ops::matmul(run, Transpose::kNN, logits, weight().value, dx);
  }
  ops::matmul(run, Transpose::kNN, own, trained.value, dx, {}, /*accumulate=*/true);
  ops::matmul(run, Transpose::kTN, own, x, trained.grad, {}, /*accumulate=*/true);
}

void TrainedTokensHead::visit(ParamVisitor& visitor) {
  inner_->visit(visitor);
  show(visitor, *rows_);
}

}  // namespace atl::nn
