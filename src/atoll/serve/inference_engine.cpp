#include "atoll/serve/inference_engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "atoll/base/quantity.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/ops/sample_token/sample_token.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/schedule/stage_costs.h"
#include "atoll/parallel/schedule/stage_cut.h"
#include "atoll/serve/head_logits.h"

namespace atl::serve {

namespace {

int tensor_size(const ModelRanks* ranks) {
  return ranks == nullptr ? 1 : ranks->layout().tensor;
}

// `capacity` where pieces are filled up.
std::unique_ptr<nn::Model> build(const nn::ModelConfig& config, std::int64_t max_tokens,
                                 std::int64_t capacity, ModelRanks* ranks) {
  if (max_tokens < 1 || max_tokens > config.max_positions) {
    throw user_error(
        "prompt and new tokens together are {}, and this model has {}; ask for fewer new tokens or "
        "give a shorter prompt",
        max_tokens, counted(config.max_positions, "position"));
  }
  nn::BuildOptions options = {.max_positions = capacity};
  if (ranks != nullptr) {
    options.tensor_size = ranks->layout().tensor;
    options.tensor_rank = ranks->tensor_rank();
    options.expert_size = ranks->layout().experts;
    options.expert_rank = ranks->expert_rank();
  }
  if (config.max_positions < 2 * options.tensor_size) {
    throw user_error(
        "parallel.tp = {}: the model has {}, and ranks that share products need two each; choose "
        "fewer ranks",
        options.tensor_size, counted(config.max_positions, "position"));
  }
  auto model = nn::build_model(config, options);
  if (ranks != nullptr) {
    model->tensor->group = &ranks->tensor();
    model->expert->group = &ranks->experts();
  }
  return model;
}

// The first stage of each rank, by the cost of a token; the head goes with the stage before it.
std::vector<std::size_t> cut_stages(const nn::Model& model, int num_ranks, std::int64_t context) {
  const std::size_t num_stages = model.stages.size();
  if (num_stages - 1 < static_cast<std::size_t>(num_ranks)) {
    throw user_error(
        "parallel.pp = {}: the model has {} stages beside its head, and each rank needs one; "
        "choose "
        "at most {}",
        num_ranks, num_stages - 1, num_stages - 1);
  }
  std::vector<double> costs;
  for (const parallel::PassCosts& stage : parallel::stage_costs(model, context)) {
    costs.push_back(stage.forward);
  }
  const double head = costs.back();
  costs.pop_back();
  costs.back() += head;
  std::vector<std::size_t> bounds =
      parallel::balanced_bounds(costs, static_cast<std::size_t>(num_ranks));
  bounds.back() = num_stages;
  return bounds;
}

}  // namespace

InferenceEngine::InferenceEngine(Device& device, const nn::ModelConfig& config,
                                 std::int64_t max_tokens, Weights weights, ModelRanks* ranks,
                                 const KeepStored& keep)
    : stream_(device.open_stream()),
      max_tokens_(max_tokens),
      capacity_(std::min(max_tokens + tensor_size(ranks) - 1, config.max_positions)),
      vocab_size_(config.vocab_size),
      ranks_(ranks),
      model_(build(config, max_tokens, capacity_, ranks)) {
  bounds_ = {0, model_->stages.size()};
  if (ranks_ != nullptr && ranks_->layout().pipeline > 1) {
    const int stages = ranks_->layout().pipeline;
    bounds_ = cut_stages(*model_, stages, max_tokens);
    parallel::keep_stages(*model_, {stages, 1, bounds_}, ranks_->pipeline_rank());
  }
  store_ = open_store(device, *model_, weights, keep);
  plan_memory(device);
  sequence_.resize(static_cast<std::size_t>(capacity_));
  positions_.resize(static_cast<std::size_t>(capacity_));
  std::iota(positions_.begin(), positions_.end(), 0);
}

void InferenceEngine::plan_memory(Device& device) {
  const nn::ModelConfig& config = model_->config;
  const int shared = tensor_size(ranks_);
  const bool has_head = ranks_ == nullptr || ranks_->has_head();
  const Spec cached = {Dtype::kF32,
                       {1, capacity_, nn::heads_of_rank(config.heads, shared).kv_width()}};
  const Spec logits = {Dtype::kF32, {kLogitRows, config.vocab_size}};
  std::size_t head_bytes = 0;
  for (const std::int64_t rows : {std::int64_t{1}, kLogitRows}) {
    if (!has_head) continue;
    head_bytes = std::max(head_bytes, HeadLogits(*model_).scratch_bytes(rows));
  }

  MemoryPlan plan;
  store_->request(plan, {});
  const int rank = ranks_ == nullptr ? 0 : ranks_->pipeline_rank();
  std::vector<std::size_t> headless = bounds_;
  --headless.back();
  const parallel::Pipeline pipeline = {static_cast<int>(headless.size()) - 1, 1, headless};
  for (const std::int64_t length : kPieces) {
    const std::int64_t rows = (length + shared - 1) / shared * shared;
    rows_.push_back(rows);
    runners_.emplace_back(*model_, *store_, parallel::Use::kGenerate, 1, rows,
                          parallel::forward_schedule(pipeline, rank));
    runners_.back().request(plan);
    if (pipeline.num_ranks > 1) runners_.back().connect(ranks_->pipeline());
  }
  // Block i is stage i + 1.
  const auto first = static_cast<std::int64_t>(bounds_[static_cast<std::size_t>(rank)]);
  const auto end = static_cast<std::int64_t>(bounds_[static_cast<std::size_t>(rank) + 1]);
  std::vector<int> cache_requests;
  for (std::int64_t i = 0; i < 2 * config.num_layers; ++i) {
    const bool is_here = i / 2 + 1 >= first && i / 2 + 1 < end;
    cache_requests.push_back(is_here ? plan.request_forever("cache", "kv cache", cached.bytes())
                                     : -1);
  }
  const Spec gathered = {Dtype::kF32, {rows_.front(), config.hidden_size}};
  const bool gathers = has_head && shared > 1;
  const int gathered_request =
      plan.request_forever("head input", "activations", gathers ? gathered.bytes() : 0);
  const bool has_logits = has_head || ranks_->leads();
  const int logits_request =
      plan.request_forever("logits", "activations", has_logits ? logits.bytes() : 0);
  const bool draws = ranks_ == nullptr || ranks_->leads();
  const Spec drawn = {Dtype::kI32, {2}};
  const int drawn_request =
      plan.request_forever("drawn token", "activations", draws ? drawn.bytes() : 0);
  if (draws) head_bytes = std::max(head_bytes, ops::sample_token_scratch_bytes(config.vocab_size));
  const int scratch_request = plan.request_forever("head", "scratch", head_bytes);
  plan.place();

  arena_ = std::make_unique<Arena>(device, plan);
  store_->bind(*arena_);
  for (parallel::Runner& runner : runners_) runner.bind(*arena_);
  for (std::size_t i = 0; i < cache_requests.size(); i += 2) {
    const bool is_here = cache_requests[i] >= 0;
    cache_.keys.push_back(is_here ? arena_->tensor(cache_requests[i], cached) : Tensor());
    cache_.values.push_back(is_here ? arena_->tensor(cache_requests[i + 1], cached) : Tensor());
  }
  if (gathers) gathered_ = arena_->tensor(gathered_request, gathered);
  if (has_logits) logits_ = arena_->tensor(logits_request, logits);
  if (draws) drawn_ = arena_->tensor(drawn_request, drawn);
  head_scratch_ = {arena_->data(scratch_request), head_bytes};
}

void InferenceEngine::limit_vocabulary(std::int64_t size) {
  const std::int64_t most = model_->config.vocab_size;
  if (size > most) {
    throw user_error("the tokenizer has {} tokens and the model {}; they do not belong together",
                     size, most);
  }
  vocab_size_ = size;
}

std::size_t InferenceEngine::bytes_per_token() const {
  return bytes_read_per_token(*model_, *store_, ranks_ == nullptr || ranks_->pipeline_rank() == 0,
                              ranks_ == nullptr || ranks_->has_head());
}

std::size_t InferenceEngine::cache_bytes() const {
  std::size_t bytes = 0;
  for (const std::vector<Tensor>* tensors : {&cache_.keys, &cache_.values}) {
    for (const Tensor& tensor : *tensors) bytes += tensor.defined() ? tensor.bytes() : 0;
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

InferenceEngine::Place InferenceEngine::next_place(std::int64_t left) const {
  for (std::size_t i = 0; i < kPieces.size(); ++i) {
    const std::int64_t tokens = kPieces[i], rows = rows_[i], fill = rows - tokens;
    if (tokens > left) continue;
    if (cache_.length + rows <= capacity_) return {i, cache_.length, rows, 0, tokens};
    // No room behind them: the tokens before them go through once more.
    if (cache_.length >= fill) return {i, cache_.length - fill, rows, fill, rows};
  }
  ATOLL_CHECK(false, "{} tokens after {} of {}", left, cache_.length, capacity_);
}

Tensor InferenceEngine::forward_piece(const Place& place, std::span<const std::int32_t> tokens) {
  const std::int64_t length = place.end - place.begin;
  // Of a window that slides these are the same tokens already.
  std::memmove(&sequence_[static_cast<std::size_t>(cache_.length)], tokens.data(),
               static_cast<std::size_t>(length) * sizeof(std::int32_t));
  filled_.assign(static_cast<std::size_t>(place.num_rows), 0);
  std::copy_n(sequence_.begin() + place.first, place.end, filled_.begin());
  Run run = {.stream = stream_.get()};
  Batch batch;
  batch.tokens = Tensor(filled_.data(), {Dtype::kI32, {1, place.num_rows}});
  batch.positions = Tensor(&positions_[static_cast<std::size_t>(place.first)],
                           {Dtype::kI32, {1, place.num_rows}});
  cache_.length = place.first;
  const Tensor hidden = runners_[place.runner].generate(run, batch, cache_);
  cache_.length += place.end;
  if (!hidden.defined()) return hidden;
  return hidden.reshaped({hidden.dim(1), hidden.dim(2)});
}

Tensor InferenceEngine::logits_of(const Tensor& hidden, std::int64_t begin, std::int64_t end) {
  const Tensor logits = logits_.defined() ? logits_.rows(0, end - begin) : Tensor();
  Run run = {.stream = stream_.get()};
  run.scratch = head_scratch_;
  if (hidden.defined()) HeadLogits(*model_).compute(run, hidden.rows(begin, end), logits);
  if (ranks_ == nullptr || ranks_->layout().pipeline == 1) return logits;
  if (!ranks_->is_in_first_pipeline()) return logits;
  const Tensor all = logits.defined() ? logits.reshaped({logits.num_elements()}) : Tensor();
  stream_->synchronize();
  if (ranks_->has_head()) ranks_->pipeline().send(all, 0);
  if (ranks_->leads()) ranks_->pipeline().recv(all, ranks_->layout().pipeline - 1);
  return logits;
}

void InferenceEngine::run_tokens(std::span<const std::int32_t> tokens, Wanted wanted,
                                 const TakeLogits& take) {
  std::int64_t row = 0;
  while (!tokens.empty()) {
    const Place place = next_place(std::ssize(tokens));
    Tensor hidden = forward_piece(place, tokens);
    tokens = tokens.subspan(static_cast<std::size_t>(place.end - place.begin));
    std::int64_t first = wanted == Wanted::kAllLogits ? place.begin : place.end;
    if (wanted == Wanted::kLastLogits && tokens.empty()) --first;
    if (first < place.end && hidden.defined() && gathered_.defined()) {
      const Tensor all = gathered_.rows(0, place.num_rows);
      Run run = {.stream = stream_.get()};
      nn::gather_rows(run, *model_->tensor, hidden, all);
      hidden = all;
    }
    for (; first < place.end; first += kLogitRows) {
      const Tensor logits = logits_of(hidden, first, std::min(first + kLogitRows, place.end));
      if (take) take(logits, row + first - place.begin);
    }
    row += place.end - place.begin;
  }
}

void InferenceEngine::ask(std::span<const std::int32_t> tokens, Wanted wanted) {
  if (ranks_ == nullptr || ranks_->layout().size() == 1) return;
  Order order = {cache_.length, std::ssize(tokens), wanted};
  ranks_->all().broadcast({&order, {Dtype::kI64, {sizeof order / sizeof(std::int64_t)}}}, 0);
  if (tokens.empty()) return;
  ranks_->all().broadcast(
      {const_cast<std::int32_t*>(tokens.data()), {Dtype::kI32, {order.num_tokens}}}, 0);
}

void InferenceEngine::dismiss() {
  ask({}, Wanted::kNothing);
}

void InferenceEngine::follow() {
  ATOLL_CHECK(ranks_ != nullptr && !ranks_->leads(), "the first rank is followed");
  std::vector<std::int32_t> tokens;
  for (;;) {
    Order order;
    ranks_->all().broadcast({&order, {Dtype::kI64, {sizeof order / sizeof(std::int64_t)}}}, 0);
    if (order.wanted == Wanted::kNothing) return;
    tokens.resize(static_cast<std::size_t>(order.num_tokens));
    ranks_->all().broadcast({tokens.data(), {Dtype::kI32, {order.num_tokens}}}, 0);
    cache_.length = order.length;
    run_tokens(tokens, order.wanted, {});
  }
}

std::span<const float> InferenceEngine::append(std::span<const std::int32_t> tokens) {
  ATOLL_CHECK(!tokens.empty());
  check_room(tokens.size());
  extend(tokens);
  last_logits_ = HostRead(last_);
  return last_logits_.elements<float>().first(static_cast<std::size_t>(vocab_size_));
}

void InferenceEngine::slide(std::span<const std::int32_t> tokens) {
  const auto room = static_cast<std::size_t>(max_tokens_);
  const auto length = static_cast<std::size_t>(cache_.length);
  tokens = tokens.last(std::min(tokens.size(), room));
  const std::size_t kept = std::min(length, room - tokens.size());
  const auto begin = sequence_.begin() + static_cast<std::ptrdiff_t>(length - kept);
  const auto end = std::copy_n(begin, kept, sequence_.begin());
  std::ranges::copy(tokens, end);
  cache_.length = 0;
  extend(std::span(sequence_).first(kept + tokens.size()));
}

void InferenceEngine::extend(std::span<const std::int32_t> tokens) {
  ask(tokens, Wanted::kLastLogits);
  run_tokens(tokens, Wanted::kLastLogits, [this](const Tensor& logits, std::int64_t) {
    last_ = logits.reshaped({logits.num_elements()});
  });
}

std::int32_t InferenceEngine::choose(const TokenSampler& sampler, std::int64_t position) {
  Run run = {.stream = stream_.get()};
  run.scratch = head_scratch_;
  ops::sample_token(run, sampler.draw(0, position), last_.rows(0, vocab_size_), drawn_);
  const HostRead read(drawn_);
  const auto words = read.elements<std::int32_t>();
  return TokenSampler::checked({words[0], std::bit_cast<float>(words[1])});
}

std::vector<double> InferenceEngine::score(std::span<const std::int32_t> tokens) {
  ATOLL_CHECK(tokens.size() >= 2);
  check_room(tokens.size() - 1);
  std::vector<double> scores;
  const auto before = tokens.first(tokens.size() - 1);
  ask(before, Wanted::kAllLogits);
  run_tokens(before, Wanted::kAllLogits, [&](const Tensor& logits, std::int64_t row) {
    const HostRead read(logits);
    for (std::int64_t i = 0; i < logits.dim(0); ++i) {
      const std::int32_t target = tokens[static_cast<std::size_t>(row + i + 1)];
      scores.push_back(log_probability(read.elements<float>().data() + i * logits.dim(1),
                                       logits.dim(1), target));
    }
  });
  return scores;
}

InferenceEngine::End InferenceEngine::generate(std::span<const std::int32_t> prompt,
                                               std::int64_t max_new_tokens,
                                               const TokenSampler& sampler, std::int32_t stop_token,
                                               const std::function<bool(std::int32_t)>& on_token) {
  const auto has_room = [&](std::size_t more) {
    return cache_.length + static_cast<std::int64_t>(more) <= max_tokens_;
  };
  ATOLL_CHECK(!prompt.empty());
  const std::int64_t before = cache_.length + static_cast<std::int64_t>(prompt.size());
  has_room(prompt.size()) ? extend(prompt) : slide(prompt);
  for (std::int64_t made = 0; made < max_new_tokens; ++made) {
    const std::int32_t token = choose(sampler, before + made);
    if (token == stop_token) return End::kStopToken;
    if (!on_token(token)) return End::kCallback;
    if (made + 1 == max_new_tokens) break;
    has_room(1) ? extend({&token, 1}) : slide({&token, 1});
  }
  return End::kMaxNewTokens;
}

}  // namespace atl::serve
