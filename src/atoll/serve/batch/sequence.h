#pragma once

// A request on its way, for the .cpp files here.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "atoll/serve/batch/block_pool.h"
#include "atoll/serve/batch/choice.h"
#include "atoll/serve/batch/ngram_draft.h"
#include "atoll/serve/batch/request.h"
#include "atoll/serve/batch/step_adapters.h"

namespace atl::serve {

/// What is known of one request's sequence.
struct Sequence {
  Sequence(std::uint64_t its_number, GenerationRequest its_request,
           std::shared_ptr<GenerationListener> its_listener)
      : number(its_number),
        request(std::move(its_request)),
        listener(std::move(its_listener)),
        sampler(request.sampling),
        tokens(request.prompt) {
    for (const std::int32_t token : request.prompt) in_prompt.try_emplace(token, 0);
  }

  std::uint64_t number;
  GenerationRequest request;
  std::shared_ptr<GenerationListener> listener;
  TokenSampler sampler;

  std::vector<std::int32_t> tokens;  ///< prompt and answer so far
  std::int64_t computed = 0;         ///< of these, whose keys and values are in the cache
  std::vector<std::int32_t> blocks;
  BlockPool::Node node = BlockPool::kRoot;  ///< of the first `named` blocks
  std::int64_t named = 0;
  TokenCounts in_prompt;
  NgramDraft draft;
  std::shared_ptr<const StepAdapter> adapter;  ///< null: none. Shared with other requests for it
  std::vector<TokenResult> prompt_results;     ///< where they are asked for
  bool prompt_told = false;                    ///< that they were
  bool was_admitted = false;                   ///< it has had memory before
  std::vector<double> hidden_sum;              ///< of the prompt's hidden states so far
  GenerationResult result;
  bool is_running = false;
  bool in_step = false;       ///< of a step that is under way
  bool is_cancelled = false;  ///< it ends when that step is done
  std::uint64_t last_step = 0;
  bool ended = false;

  std::int64_t length() const { return std::ssize(tokens); }
  std::int64_t prompt_length() const { return std::ssize(request.prompt); }
  /// Whether nothing is wanted behind the last token, which then goes through no layer.
  bool is_only_scored() const {
    return request.prompt_logprobs && request.max_new_tokens == 0 &&
           request.pooling == Pooling::kNone && prompt_length() > 1;
  }
  /// Tokens that go through the model, of those that there are so far.
  std::int64_t to_compute() const { return length() - (is_only_scored() ? 1 : 0); }
  /// Tokens that are still to go through the model.
  std::int64_t pending() const { return to_compute() - computed; }
  /// As many of these as one step may take: those behind which log-probabilities are told begin a
  /// piece of their own, so that no logits are computed for the others.
  std::int64_t pending_in_step() const {
    const std::int64_t told = request.prompt_logprobs ? request.first_prompt_logprob - 1 : 0;
    return computed < told ? told - computed : pending();
  }
  bool is_decoding() const { return pending() == 1 && length() > prompt_length(); }
};

}  // namespace atl::serve
