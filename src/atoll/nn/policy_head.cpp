#include "atoll/nn/policy_head.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

using ops::Transpose;

PolicyHead::PolicyHead(std::unique_ptr<Layer> inner, const ops::PolicyLoss& loss,
                       FindPolicyTokens find)
    : inner_(std::move(inner)),
      head_(dynamic_cast<const LinearCrossEntropy*>(inner_.get())),
      loss_(loss),
      find_(std::move(find)) {
  ATOLL_CHECK(head_ != nullptr, "a head of another kind");
}

Footprint PolicyHead::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  const Shape& w = weight().spec.shape;
  const std::int64_t rows = ops::logits_rows(x.shape.num_rows(), w.dim(0));
  const Spec logits = {compute_dtype(x.dtype), {rows, w.dim(0)}};
  const Spec part = {x.dtype, {rows, w.dim(1)}};
  std::size_t products = head_->logits_scratch_bytes(part);
  if (weight().is_packed()) {
    products = std::max(products, ops::matmul_packed_scratch_bytes(rows, w));
  } else {
    products = std::max({products, ops::matmul_scratch_bytes(Transpose::kNN, logits, weight().spec),
                         ops::matmul_scratch_bytes(Transpose::kTN, logits, part)});
  }
  footprint.scratch_bytes = align_up(logits.bytes()) + products;
  return footprint;
}

void PolicyHead::forward(Run& run, const Pass& pass) {
  const std::int64_t rows = pass.x.shape().num_rows();
  const std::int64_t vocab = weight().spec.shape.dim(0);
  const std::int64_t chunk = ops::logits_rows(rows, vocab);
  const Tensor x = pass.x.reshaped({rows, pass.x.dim(-1)});
  const Tensor targets = pass.batch->targets.reshaped({rows});
  const Tensor loss = pass.y.reshaped({rows});
  const Tensor dx = run.training ? pass.kept[0].reshaped(x.shape()) : Tensor();
  const PolicyTokens tokens = find_(run.first_sample);
  Run inner = run;
  const Tensor room = inner.take_scratch({loss.dtype(), {chunk, vocab}});
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, rows);
    const auto first = static_cast<std::size_t>(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    const Tensor logits = room.rows(0, end - begin);
    head_->logits(inner, x.rows(begin, end), logits);
    ops::policy_loss_of_logits(
        inner, loss_, logits, targets.rows(begin, end), tokens.facts.subspan(first, count),
        tokens.outcomes.subspan(first, count), loss.rows(begin, end), dx.defined());
    if (dx.defined()) pass_back(inner, logits, x.rows(begin, end), dx.rows(begin, end));
  }
}

void PolicyHead::pass_back(Run& run, const Tensor& logits, const Tensor& x,
                           const Tensor& dx) const {
  if (weight().is_packed()) {
    return ops::matmul_packed_backward(run, logits, weight().packed, dx);
  }
  ops::matmul(run, Transpose::kNN, logits, weight().value, dx);
  if (!weight().grad.defined()) return;
  ops::matmul(run, Transpose::kTN, logits, x, weight().grad, {}, /*accumulate=*/true);
}

}  // namespace atl::nn
