#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/models/family.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/serve/model_ranks.h"
#include "atoll/serve/rounded_store.h"
#include "atoll/serve/token_sampler.h"
#include "atoll/tensor/host_access.h"

namespace atl::serve {

/// Generates text with one model, one sequence at a time, in memory planned beforehand: a cache of
/// the keys and values of the last max_tokens tokens.
///
/// Several ranks may share the model. Each then has its layers' share of the cache, and of a layer
/// its heads' share. The first rank is called as if it were alone; the others do what it asks
/// (follow), and it lets them go (dismiss).
class InferenceEngine {
 public:
  /// `max_tokens`: prompt and generated text together, at most the model's positions (Error(kUser)
  /// otherwise). The device must outlive the engine. Parameters are zero until someone fills
  /// store(). `ranks`: those that share the model, which must outlive the engine; null: this one
  /// has all of it. Throws Error(kUser) where they cannot share it.
  InferenceEngine(Device& device, const nn::ModelConfig& config, std::int64_t max_tokens,
                  Weights weights = Weights::kF32, ModelRanks* ranks = nullptr,
                  const KeepStored& keep = {});

  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return *store_; }
  /// On the other ranks: does what the first one asks, until it lets them go. Throws PeerError when
  /// it, or another, is lost.
  void follow();
  /// On the first rank, at the end: the others return from follow().
  void dismiss();

  /// Bytes of weights that making one token reads on this rank: all but embeddings that no head
  /// shares.
  std::size_t bytes_per_token() const;
  /// Bytes of the cache on this rank.
  std::size_t cache_bytes() const;
  std::int64_t max_tokens() const { return max_tokens_; }

  /// Only the first `size` ids may be generated: a padded embedding has rows that are no token.
  void limit_vocabulary(std::int64_t size);

  /// Tokens go through in pieces of these lengths, the longest that fits first, so that memory is
  /// planned once. A sequence cut at a multiple of the first is computed the same, bit for bit.
  /// Ranks that share products share rows too: a piece is filled up to a multiple of their number.
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
               const TokenSampler& sampler, std::int32_t stop_token,
               const std::function<bool(std::int32_t)>& on_token);

 private:
  // Rows of the head that score() computes together.
  static constexpr std::int64_t kLogitRows = 8;

  // What the leader asks of the others: to take tokens at this place, and which rows' logits.
  enum class Wanted : std::int64_t { kNothing, kLastLogits, kAllLogits };
  struct Order {
    std::int64_t length = 0;  // of the cache, before
    std::int64_t num_tokens = 0;
    Wanted wanted = Wanted::kNothing;  // with it the others are let go
  };
  // Where a piece goes: rows [begin, end) of `num_rows` are what was asked for.
  struct Place {
    std::size_t runner = 0;
    std::int64_t first = 0;  // in the cache
    std::int64_t num_rows = 0, begin = 0, end = 0;
  };
  // Gets the logits of rows in order, (R, V): the rows from `row` on of the tokens.
  using TakeLogits = std::function<void(Tensor logits, std::int64_t row)>;

  void plan_memory(Device& device);
  void check_room(std::size_t num_tokens) const;
  // Appends without a look at the room; last_ then has the logits of what comes next.
  void extend(std::span<const std::int32_t> tokens);
  // Appends after forgetting as many tokens at the beginning as there is no room for.
  void slide(std::span<const std::int32_t> tokens);
  // What comes next, drawn where the logits are.
  std::int32_t choose(const TokenSampler& sampler, std::int64_t position);
  // Takes all tokens through this rank's part of the model; `take` is called on the leader.
  void run_tokens(std::span<const std::int32_t> tokens, Wanted wanted, const TakeLogits& take);
  void ask(std::span<const std::int32_t> tokens, Wanted wanted);
  // Of the longest piece that `left` tokens begin with.
  Place next_place(std::int64_t left) const;
  // The head's input, (rows, C); undefined where this rank has no head.
  Tensor forward_piece(const Place& place, std::span<const std::int32_t> tokens);
  // Brings the logits after rows [begin, end) of the head's input, at most kLogitRows, to the
  // leader; what it returns, (R, V), has them there.
  Tensor logits_of(const Tensor& hidden, std::int64_t begin, std::int64_t end);

  std::unique_ptr<Stream> stream_;
  std::int64_t max_tokens_;
  std::int64_t capacity_;  // rows of the cache: max_tokens, and what fills up pieces
  std::int64_t vocab_size_;
  ModelRanks* ranks_;
  std::vector<std::size_t> bounds_;  // the first stage of each rank of the pipeline, and the end
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<parallel::ParamStore> store_;
  std::vector<parallel::Runner> runners_;  // one a length of piece
  std::vector<std::int64_t> rows_;         // of each
  std::unique_ptr<Arena> arena_;
  nn::KvCache cache_;
  std::vector<std::int32_t> sequence_;   // capacity; what the cache is of, as long as that is
  std::vector<std::int32_t> positions_;  // 0 to capacity - 1
  std::vector<std::int32_t> filled_;     // a piece with what fills it up
  Tensor gathered_;                      // of ranks that share rows: (rows, C)
  Tensor logits_;
  Tensor last_;           // (V): of what comes next
  Tensor drawn_;          // i32 (2): as ops::sample_token gives it
  HostRead last_logits_;  // what append() has returned
  std::span<std::byte> head_scratch_;
};

}  // namespace atl::serve
