#pragma once

// What a client wants generated, and what it gets: tokens, not texts.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/serve/token_sampler.h"

namespace atl::serve {

/// Which tokens may come next in a text that has a form (a grammar, a JSON schema). One belongs to
/// one request; all calls come from the engine's thread.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Clears the bit of each token that may not come next: bit i % 64 of word i / 64 is token i's.
  /// Bits that are cleared already stay so. A token that ends the text keeps its bit where the text
  /// may end here.
  virtual void mask(std::span<std::uint64_t> allowed) = 0;
  /// The token that has come, which mask() had allowed.
  virtual void accept(std::int32_t token) = 0;
  /// Whether nothing may follow any more, so that the text ends without a token that says so.
  virtual bool is_over() const = 0;
};

/// How the next token is drawn, beside SamplingOptions.
struct LogitChanges {
  double min_p = 0;               ///< only tokens with this much of the likeliest one's probability
  double presence_penalty = 0;    ///< taken off the logit of a token that has been generated
  double frequency_penalty = 0;   ///< the same for each time
  double repetition_penalty = 1;  ///< divides a positive logit, and multiplies a negative one, of
                                  ///< tokens of the prompt and generated ones (Keskar et al. 2019)
  std::vector<std::pair<std::int32_t, double>> bias;  ///< added to a token's logit

  /// A smaller repetition_penalty would take logits out of the range of numbers.
  static constexpr double kMinRepetition = 0.01;
  /// Throws Error(kUser) naming the number that makes no sense.
  void validate() const;
};

/// What one vector for a whole text is made of: the model's last hidden states, behind its last
/// norm.
enum class Pooling {
  kNone,  ///< there is none
  kMean,  ///< their mean over all tokens
  kLast,  ///< that of the last token
};

/// One sequence to generate.
struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< one token at least
  std::int64_t max_new_tokens = 0;   ///< 0: only the prompt is read
  SamplingOptions sampling;
  std::int64_t sequence = 0;  ///< draws depend on the seed, this number and the position
  LogitChanges changes;
  std::vector<std::int32_t> stop_tokens;  ///< ascending; one of them ends the text
  /// How many of the likeliest tokens are told with each token: -1: not even its own probability.
  int top_logprobs = -1;
  bool prompt_logprobs = false;  ///< the same for the prompt's tokens but the first
  /// The first token of the prompt that prompt_logprobs tells, counted from 0. Keys and values of
  /// what stands before it may come from the cache; with 1 all of the prompt is computed.
  std::int64_t first_prompt_logprob = 1;
  Pooling pooling = Pooling::kNone;  ///< of the prompt: GenerationResult::embedding
  /// Requests of the same key share what was computed for a prompt that begins alike.
  std::string cache_key;
  std::unique_ptr<TokenConstraint> constraint;  ///< null: none
  std::string adapter;                          ///< of Generator::adapters(); empty: none
};

/// A token of an answer, or of a prompt.
struct TokenResult {
  std::int32_t token = -1;
  /// Its log-probability in nats, of the model's logits before they are changed or cut; 0 where
  /// nobody asked.
  double logprob = 0;
  std::vector<std::pair<std::int32_t, double>> top;  ///< the likeliest, in that order
};

/// How an answer ended.
enum class Finish {
  kStop,       ///< a stop token, the constraint's end, or the listener's wish
  kLength,     ///< max_new_tokens, or the model's last position
  kCancelled,  ///< cancel(), or the engine ends
  kFailed,     ///< the model's numbers are not finite, or something else that is no client's fault
};

/// The whole of what was done for a request.
struct GenerationResult {
  Finish finish = Finish::kFailed;
  std::int32_t stop_token = -1;    ///< that ended it, which was not passed on; -1: none
  std::int64_t prompt_tokens = 0;  ///< of the request
  std::int64_t cached_tokens = 0;  ///< of these, whose keys and values were there already
  std::int64_t new_tokens = 0;     ///< passed on
  std::vector<float> embedding;    ///< of GenerationRequest::pooling, as many as hidden_size
  std::string version;             ///< of the model and adapter that made all of it
  std::string error;               ///< of kFailed
};

/// Gets what becomes of one request. Calls come from the engine's thread, one after another, and
/// must not take long: all other requests wait meanwhile. A listener that throws ends its request.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  /// When the request has memory and its prompt begins to be read: it waits no more. Once, whatever
  /// happens to it later.
  virtual void on_begin() {}
  /// Once, before the first token, where GenerationRequest::prompt_logprobs: the prompt's tokens
  /// from first_prompt_logprob on.
  virtual void on_prompt(std::span<const TokenResult> /*tokens*/) {}
  /// The next token. False: enough (a stop string was written); on_end() follows with kStop.
  virtual bool on_token(const TokenResult& token) = 0;
  /// Once, at the end; nothing comes after it.
  virtual void on_end(const GenerationResult& result) = 0;
};

}  // namespace atl::serve
