#include "atoll/serve/inference_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "atoll/base/quantity.h"
#include "atoll/parallel/store_single.h"

namespace atl::serve {

namespace {

std::unique_ptr<nn::Model> build(const nn::ModelConfig& config, std::int64_t max_tokens) {
  if (max_tokens < 1 || max_tokens > config.max_positions) {
    throw user_error(
        "prompt and new tokens together are {}, and this model has {}; ask for fewer new tokens or "
        "give a shorter prompt",
        max_tokens, counted(config.max_positions, "position"));
  }
  return nn::build_model(config, {.max_positions = max_tokens});
}

// log softmax(logits)[target], in double.
double log_probability(const float* logits, std::int64_t vocab_size, std::int32_t target) {
  ATOLL_CHECK(target >= 0 && target < vocab_size, "token {} of {}", target, vocab_size);
  const double largest = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (std::int64_t i = 0; i < vocab_size; ++i) sum += std::exp(logits[i] - largest);
  const double result = logits[target] - largest - std::log(sum);
  if (std::isfinite(result)) return result;
  throw make_error(ErrorKind::kNumeric,
                   "the model gives a log-probability of {}; its weights are not finite or not of "
                   "this config.json",
                   result);
}

std::unique_ptr<parallel::ParamStore> make_store(Device& device, nn::Model& model,
                                                 Weights weights) {
  if (weights == Weights::kF32) {
    return std::make_unique<parallel::SingleStore>(model, /*training=*/false);
  }
  return std::make_unique<RoundedStore>(device, model, weights);
}

}  // namespace

InferenceEngine::InferenceEngine(Device& device, const nn::ModelConfig& config,
                                 std::int64_t max_tokens, Weights weights)
    : stream_(device.open_stream()),
      max_tokens_(max_tokens),
      vocab_size_(config.vocab_size),
      model_(build(config, max_tokens)),
      store_(make_store(device, *model_, weights)) {
  const Spec cached = {Dtype::kF32, {1, max_tokens, config.heads.kv_width()}};
  const Spec logits = {Dtype::kF32, {kLogitRows, config.vocab_size}};
  std::size_t head_bytes = 0;
  for (const std::int64_t rows : {std::int64_t{1}, kLogitRows}) {
    const Spec hidden = {Dtype::kF32, {rows, config.hidden_size}};
    head_bytes = std::max(head_bytes, model_->head->logits_scratch_bytes(hidden));
  }

  MemoryPlan plan;
  store_->request(plan, {});
  for (const std::int64_t length : kPieces) {
    runners_.emplace_back(*model_, *store_, parallel::Use::kGenerate, 1, length);
    runners_.back().request(plan);
  }
  std::vector<int> cache_requests;
  for (std::int64_t i = 0; i < 2 * config.num_layers; ++i) {
    cache_requests.push_back(plan.request_forever("cache", "kv cache", cached.bytes()));
  }
  const int logits_request = plan.request_forever("logits", "activations", logits.bytes());
  const int scratch_request = plan.request_forever("head", "scratch", head_bytes);
  plan.place();

  arena_ = std::make_unique<Arena>(device, plan);
  store_->bind(*arena_);
  for (parallel::Runner& runner : runners_) runner.bind(*arena_);
  for (std::size_t i = 0; i < cache_requests.size(); i += 2) {
    cache_.keys.push_back(arena_->tensor(cache_requests[i], cached));
    cache_.values.push_back(arena_->tensor(cache_requests[i + 1], cached));
  }
  sequence_.resize(static_cast<std::size_t>(max_tokens));
  positions_.resize(static_cast<std::size_t>(max_tokens));
  std::iota(positions_.begin(), positions_.end(), 0);
  logits_ = arena_->tensor(logits_request, logits);
  head_scratch_ = {arena_->data(scratch_request), head_bytes};
}

void InferenceEngine::limit_vocabulary(std::int64_t size) {
  if (size > logits_.dim(1)) {
    throw user_error("the tokenizer has {} tokens and the model {}; they do not belong together",
                     size, logits_.dim(1));
  }
  vocab_size_ = size;
}

std::size_t InferenceEngine::bytes_per_token() const {
  std::size_t bytes = 0;
  for (const nn::Param* param : store_->params()) {
    const bool looked_up =
        param->is_embedding &&
        (param->is_position || (!model_->config.tie_embeddings && param != model_->head->weight()));
    if (looked_up) continue;
    bytes += param->as_int8 ? param->int8.values.bytes() + param->int8.scales.bytes()
                            : param->value.bytes();
  }
  return bytes;
}

void InferenceEngine::truncate(std::int64_t length) {
  ATOLL_CHECK(length >= 0 && length <= cache_.length, "{} of {}", length, cache_.length);
  cache_.length = length;
}

void InferenceEngine::check_room(std::size_t num_tokens) const {
  const std::int64_t length = cache_.length + static_cast<std::int64_t>(num_tokens);
  if (length <= max_tokens_) return;
  throw user_error("the sequence would be {} tokens long and the engine was made for {}", length,
                   max_tokens_);
}

Tensor InferenceEngine::forward_piece(std::span<const std::int32_t> tokens) {
  const auto left = static_cast<std::int64_t>(tokens.size());
  std::size_t choice = 0;
  while (kPieces[choice] > left) ++choice;
  const std::int64_t piece = kPieces[choice];
  Run run = {.stream = stream_.get()};
  Batch batch;
  batch.tokens = Tensor(const_cast<std::int32_t*>(tokens.data()), {Dtype::kI32, {1, piece}});
  batch.positions =
      Tensor(&positions_[static_cast<std::size_t>(cache_.length)], {Dtype::kI32, {1, piece}});
  const Tensor hidden = runners_[choice].generate(run, batch, cache_);
  // Of a window that slides these are the same tokens already.
  std::memmove(&sequence_[static_cast<std::size_t>(cache_.length)], tokens.data(),
               batch.tokens.bytes());
  cache_.length += piece;
  return hidden.reshaped({piece, hidden.dim(-1)});
}

Tensor InferenceEngine::logits_of(Tensor hidden) {
  Run run = {.stream = stream_.get()};
  run.scratch = head_scratch_;
  const Tensor logits = logits_.rows(0, hidden.dim(0));
  model_->head->logits(run, hidden, logits);
  return logits;
}

std::span<const float> InferenceEngine::append(std::span<const std::int32_t> tokens) {
  ATOLL_CHECK(!tokens.empty());
  check_room(tokens.size());
  return extend(tokens);
}

std::span<const float> InferenceEngine::slide(std::span<const std::int32_t> tokens) {
  const auto room = static_cast<std::size_t>(max_tokens_);
  const auto length = static_cast<std::size_t>(cache_.length);
  tokens = tokens.last(std::min(tokens.size(), room));
  const std::size_t kept = std::min(length, room - tokens.size());
  const auto begin = sequence_.begin() + static_cast<std::ptrdiff_t>(length - kept);
  const auto end = std::copy_n(begin, kept, sequence_.begin());
  std::ranges::copy(tokens, end);
  cache_.length = 0;
  return extend(std::span(sequence_).first(kept + tokens.size()));
}

std::span<const float> InferenceEngine::extend(std::span<const std::int32_t> tokens) {
  Tensor hidden;
  while (!tokens.empty()) {
    hidden = forward_piece(tokens);
    tokens = tokens.subspan(static_cast<std::size_t>(hidden.dim(0)));
  }
  const Tensor logits = logits_of(hidden.rows(hidden.dim(0) - 1, hidden.dim(0)));
  last_logits_ = HostRead(logits);
  return last_logits_.elements<float>().first(static_cast<std::size_t>(vocab_size_));
}

std::vector<double> InferenceEngine::score(std::span<const std::int32_t> tokens) {
  ATOLL_CHECK(tokens.size() >= 2);
  check_room(tokens.size() - 1);
  std::vector<double> scores;
  while (tokens.size() > 1) {
    const Tensor hidden = forward_piece(tokens.first(tokens.size() - 1));
    const std::int64_t piece = hidden.dim(0);
    for (std::int64_t row = 0; row < piece; row += kLogitRows) {
      const Tensor logits = logits_of(hidden.rows(row, std::min(row + kLogitRows, piece)));
      const HostRead read(logits);
      for (std::int64_t i = 0; i < logits.dim(0); ++i) {
        const std::int32_t target = tokens[static_cast<std::size_t>(row + i + 1)];
        scores.push_back(log_probability(read.elements<float>().data() + i * logits.dim(1),
                                         logits.dim(1), target));
      }
    }
    tokens = tokens.subspan(static_cast<std::size_t>(piece));
  }
  return scores;
}

InferenceEngine::End InferenceEngine::generate(std::span<const std::int32_t> prompt,
                                               std::int64_t max_new_tokens, TokenSampler& sampler,
                                               std::int32_t stop_token,
                                               const std::function<bool(std::int32_t)>& on_token) {
  const auto has_room = [&](std::size_t more) {
    return cache_.length + static_cast<std::int64_t>(more) <= max_tokens_;
  };
  ATOLL_CHECK(!prompt.empty());
  const std::int64_t before = cache_.length + static_cast<std::int64_t>(prompt.size());
  std::span<const float> logits = has_room(prompt.size()) ? extend(prompt) : slide(prompt);
  for (std::int64_t made = 0; made < max_new_tokens; ++made) {
    const std::int32_t token = sampler.next(logits, 0, before + made);
    if (token == stop_token) return End::kStopToken;
    if (!on_token(token)) return End::kCallback;
    if (made + 1 == max_new_tokens) break;
    logits = has_room(1) ? extend({&token, 1}) : slide({&token, 1});
  }
  return End::kMaxNewTokens;
}

}  // namespace atl::serve
