#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/models/family.h"
#include "atoll/parallel/param_store.h"
#include "atoll/parallel/runner.h"
#include "atoll/serve/rounded_store.h"
#include "atoll/serve/token_sampler.h"
#include "atoll/tensor/host_access.h"

namespace atl::serve {

/// Generates text with one model, one sequence at a time, in memory planned beforehand: a cache of
/// the keys and values of the last max_tokens tokens.
class InferenceEngine {
 public:
  /// `max_tokens`: prompt and generated text together, at most the model's positions (Error(kUser)
  /// otherwise). The device must outlive the engine. Parameters are zero until someone fills
  /// store().
  InferenceEngine(Device& device, const nn::ModelConfig& config, std::int64_t max_tokens,
                  Weights weights = Weights::kF32);

  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return *store_; }
  /// Bytes of weights that making one token reads: all but embeddings that no head shares.
  std::size_t bytes_per_token() const;
  std::int64_t max_tokens() const { return max_tokens_; }

  /// Only the first `size` ids may be generated: a padded embedding has rows that are no token.
  void limit_vocabulary(std::int64_t size);

  /// Tokens go through in pieces of these lengths, the longest that fits first, so that memory is
  /// planned once. A sequence cut at a multiple of the first is computed the same, bit for bit.
  static constexpr std::array<std::int64_t, 3> kPieces = {64, 8, 1};

  /// Forgets the sequence so far.
  void reset() { cache_.length = 0; }
  /// Forgets all but the first `length` tokens, of which there must be as many.
  void truncate(std::int64_t length);
  /// Tokens in the cache.
  std::int64_t length() const { return cache_.length; }
  /// Appends tokens to the sequence and returns the logits (V, or as limited) of what comes next;
  /// the view is valid until the next call. Throws Error(kUser) when the sequence would exceed
  /// max_tokens.
  std::span<const float> append(std::span<const std::int32_t> tokens);
  /// Appends all of `tokens` (two or more) but the last, and returns the log-probability of each
  /// but the first, given everything before it: nats, over the model's whole vocabulary whatever
  /// the limit. Throws as append, and Error(kNumeric) where one is not finite.
  std::vector<double> score(std::span<const std::int32_t> tokens);

  /// What ended a generation.
  enum class End { kStopToken, kMaxNewTokens, kCallback };
  /// Appends `prompt`, then generates until `stop_token` (-1: none), `max_new_tokens`, or until
  /// `on_token` returns false. A stop token is not passed on. Where the sequence, or the prompt
  /// alone, exceeds max_tokens, each token is made of the last max_tokens before it (as nanoGPT
  /// does): at other positions they have other keys and values, so all are computed anew each time.
  End generate(std::span<const std::int32_t> prompt, std::int64_t max_new_tokens,
               TokenSampler& sampler, std::int32_t stop_token,
               const std::function<bool(std::int32_t)>& on_token);

 private:
  // Rows of the head that score() computes together.
  static constexpr std::int64_t kLogitRows = 8;

  void check_room(std::size_t num_tokens) const;
  // Appends without a look at the room; returns the logits, as append() does.
  std::span<const float> extend(std::span<const std::int32_t> tokens);
  // Appends after forgetting as many tokens at the beginning as there is no room for.
  std::span<const float> slide(std::span<const std::int32_t> tokens);
  // Takes the longest piece that `tokens` begin with; returns the head's input, (piece, C).
  Tensor forward_piece(std::span<const std::int32_t> tokens);
  // The logits after each row of the head's input, (R, C), at most kLogitRows; (R, V).
  Tensor logits_of(Tensor hidden);

  std::unique_ptr<Stream> stream_;
  std::int64_t max_tokens_;
  std::int64_t vocab_size_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<parallel::ParamStore> store_;
  std::vector<parallel::Runner> runners_;  // one a length of piece
  std::unique_ptr<Arena> arena_;
  nn::KvCache cache_;
  std::vector<std::int32_t> sequence_;   // max_tokens; what the cache is of, as long as that is
  std::vector<std::int32_t> positions_;  // 0 to max_tokens - 1
  Tensor logits_;
  HostRead last_logits_;  // what append() has returned
  std::span<std::byte> head_scratch_;
};

}  // namespace atl::serve
