#include "atoll/serve/head_logits.h"

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/ops/policy/policy_loss.h"

namespace atl::serve {

namespace {

const nn::VocabularyCrossEntropy* shared_head(const nn::Model& model) {
  return dynamic_cast<const nn::VocabularyCrossEntropy*>(model.stages.back().get());
}

// The table that tokens are looked up in, in a model that has no head or another matrix there.
class FirstParam final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (first == nullptr) first = &param;
  }
  const nn::Param* first = nullptr;
};

const nn::Param* looked_up(nn::Model& model, bool has_embedding, bool has_head) {
  if (!has_embedding || (has_head && model.config.tie_embeddings)) return nullptr;
  FirstParam visitor;
  model.stages.front()->visit(visitor);
  return visitor.first;
}

}  // namespace

std::size_t bytes_read_per_token(nn::Model& model, const parallel::ParamStore& store,
                                 bool has_embedding, bool has_head) {
  const nn::Param* table = looked_up(model, has_embedding, has_head);
  std::size_t bytes = 0;
  for (const nn::Param* param : store.params()) {
    if (param == table || (param->is_embedding && param->is_position)) continue;
    if (param->is_packed()) {
      bytes += param->packed.bytes.bytes();
      continue;
    }
    bytes += param->as_int8 ? param->int8.values.bytes() + param->int8.scales.bytes()
                            : param->value.bytes();
  }
  return bytes;
}

std::size_t HeadLogits::scratch_bytes(std::int64_t rows) const {
  const Spec hidden = {Dtype::kF32, {rows, model_.config.hidden_size}};
  const nn::VocabularyCrossEntropy* head = shared_head(model_);
  return head == nullptr ? model_.head->logits_scratch_bytes(hidden)
                         : head->logits_scratch_bytes(hidden);
}

void HeadLogits::compute(Run& run, const Tensor& hidden, const Tensor& logits) const {
  if (const nn::VocabularyCrossEntropy* head = shared_head(model_))
    head->logits(run, hidden, logits);
  else
    model_.head->logits(run, hidden, logits);
}

double log_probability(const float* logits, std::int64_t vocab_size, std::int32_t target) {
  ATOLL_CHECK(target >= 0 && target < vocab_size, "token {} of {}", target, vocab_size);
  const double result = ops::log_softmax_at(logits, vocab_size, target);
  if (std::isfinite(result)) return result;
  throw make_error(ErrorKind::kNumeric,
                   "the model gives a log-probability of {}; its weights are not finite or not of "
                   "this config.json",
                   result);
}

}  // namespace atl::serve
