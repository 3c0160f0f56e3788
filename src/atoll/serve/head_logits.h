#pragma once

#include <cstddef>
#include <cstdint>

#include "atoll/nn/model.h"
#include "atoll/ops/run.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::serve {

/// Logits by the head of a model, whichever of the two heads it has.
class HeadLogits {
 public:
  /// The model must outlive this.
  explicit HeadLogits(const nn::Model& model) : model_(model) {}

  /// Scratch that compute() needs for so many rows.
  std::size_t scratch_bytes(std::int64_t rows) const;
  /// logits = the head's product with `hidden`.  hidden: (R, C)  logits: (R, V)
  void compute(Run& run, const Tensor& hidden, const Tensor& logits) const;

 private:
  const nn::Model& model_;
};

/// Bytes of the parameters of `store` that a token reads on this rank: all but positions and but a
/// table in the model's first stage that only looks tokens up, where `has_embedding` says that this
/// rank has that stage; `has_head`: and the head.
std::size_t bytes_read_per_token(nn::Model& model, const parallel::ParamStore& store,
                                 bool has_embedding, bool has_head);

/// log softmax(logits)[target], in nats and in double.  logits: (vocab_size). Throws
/// Error(kNumeric) where that is not finite.
double log_probability(const float* logits, std::int64_t vocab_size, std::int32_t target);

}  // namespace atl::serve
