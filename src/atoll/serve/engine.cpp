#include "atoll/serve/engine.h"

#include <algorithm>

namespace atl::serve {

namespace {

std::unique_ptr<nn::Model> build(const nn::ModelConfig& config, std::int64_t max_tokens) {
  if (max_tokens < 1 || max_tokens > config.max_positions) {
    throw user_error(
        "prompt and new tokens together are {}, and this model has {} positions; ask for fewer new "
        "tokens or give a shorter prompt",
        max_tokens, config.max_positions);
  }
  return nn::build_model(config, {.max_positions = max_tokens});
}

}  // namespace

Engine::Engine(Device& device, const nn::ModelConfig& config, std::int64_t max_tokens)
    : stream_(device),
      max_tokens_(max_tokens),
      vocab_size_(config.vocab_size),
      model_(build(config, max_tokens)),
      store_(*model_, /*training=*/false),
      prefill_(*model_, parallel::Use::kGenerate, 1, kPrefill),
      decode_(*model_, parallel::Use::kGenerate, 1, 1) {
  const Spec cached = {Dtype::kF32, {1, max_tokens, config.heads.kv_width()}};
  const Spec logits = {Dtype::kF32, {1, config.vocab_size}};
  const Spec scratch = {Dtype::kU8,
                        {static_cast<std::int64_t>(model_->head->logits_scratch_bytes(
                            {Dtype::kF32, {1, config.hidden_size}}))}};

  MemoryPlan plan;
  store_.request(plan);
  prefill_.request(plan);
  decode_.request(plan);
  std::vector<int> cache_requests;
  for (std::int64_t i = 0; i < 2 * config.num_layers; ++i) {
    cache_requests.push_back(plan.request_forever("cache", "kv cache", cached.bytes()));
  }
  const int logits_request = plan.request_forever("logits", "activations", logits.bytes());
  const int scratch_request = plan.request_forever("head", "scratch", scratch.bytes());
  plan.place();

  arena_ = std::make_unique<Arena>(device, plan);
  store_.bind(*arena_);
  prefill_.bind(*arena_);
  decode_.bind(*arena_);
  for (std::size_t i = 0; i < cache_requests.size(); i += 2) {
    cache_.keys.push_back(arena_->tensor(cache_requests[i], cached));
    cache_.values.push_back(arena_->tensor(cache_requests[i + 1], cached));
  }
  logits_ = arena_->tensor(logits_request, logits);
  head_scratch_ = arena_->tensor(scratch_request, scratch);
}

void Engine::limit_vocabulary(std::int64_t size) {
  if (size > logits_.num_elements()) {
    throw user_error("the tokenizer has {} tokens and the model {}; they do not belong together",
                     size, logits_.num_elements());
  }
  vocab_size_ = size;
}

std::span<const float> Engine::append(std::span<const std::int32_t> tokens) {
  ATOLL_CHECK(!tokens.empty());
  if (cache_.length + static_cast<std::int64_t>(tokens.size()) > max_tokens_) {
    throw user_error("the sequence would be {} tokens long and the engine was made for {}",
                     cache_.length + static_cast<std::int64_t>(tokens.size()), max_tokens_);
  }
  Run run = {.stream = &stream_};
  Tensor hidden;
  while (!tokens.empty()) {
    const bool whole_piece = static_cast<std::int64_t>(tokens.size()) >= kPrefill;
    const std::int64_t piece = whole_piece ? kPrefill : 1;
    Batch batch;
    batch.tokens = Tensor(const_cast<std::int32_t*>(tokens.data()), {Dtype::kI32, {1, piece}});
    hidden = (whole_piece ? prefill_ : decode_).generate(run, batch, cache_);
    cache_.length += piece;
    tokens = tokens.subspan(static_cast<std::size_t>(piece));
    hidden = hidden.reshaped({piece, hidden.dim(-1)}).rows(piece - 1, piece);
  }
  run.scratch = {static_cast<std::byte*>(head_scratch_.raw()), head_scratch_.bytes()};
  model_->head->logits(run, hidden, logits_);
  return {logits_.data<float>(), static_cast<std::size_t>(vocab_size_)};
}

Engine::End Engine::generate(std::span<const std::int32_t> prompt, std::int64_t max_new_tokens,
                             Sampler& sampler, std::int32_t stop_token,
                             const std::function<bool(std::int32_t)>& on_token) {
  std::span<const float> logits = append(prompt);
  for (std::int64_t made = 0; made < max_new_tokens; ++made) {
    const std::int32_t token = sampler.next(logits, 0, cache_.length);
    if (token == stop_token) return End::kStopToken;
    if (!on_token(token)) return End::kCallback;
    if (made + 1 == max_new_tokens) break;
    if (cache_.length == max_tokens_) return End::kContextFull;
    logits = append({&token, 1});
  }
  return End::kMaxNewTokens;
}

}  // namespace atl::serve
