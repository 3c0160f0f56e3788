#include "atoll/rl/sampler.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/device/device.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/tensor/host_access.h"

namespace atl::rl {

namespace {

constexpr std::int64_t kStepRows = 128;

// Waits for so many requests to end, and keeps the first error.
class Countdown {
 public:
  explicit Countdown(std::size_t count) : left_(count) {}

  void end(const serve::GenerationResult& result) {
    const std::lock_guard lock(mutex_);
    if (result.finish == serve::Finish::kFailed && error_.empty()) error_ = result.error;
    if (result.finish == serve::Finish::kCancelled && error_.empty()) error_ = "it was cancelled";
    if (--left_ == 0) done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0; });
    if (error_.empty()) return;
    throw make_error(ErrorKind::kNumeric, "a completion could not be sampled: {}", error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t left_;
  std::string error_;
};

// One request; what it gets goes straight to whoever waits for it.
class Listener final : public serve::GenerationListener {
 public:
  Listener(Countdown& countdown, const std::vector<std::int32_t>& stops, Completion* completion,
           std::vector<double>* scores)
      : countdown_(countdown), stops_(stops), completion_(completion), scores_(scores) {}

  void on_prompt(std::span<const serve::TokenResult> tokens) override {
    for (const serve::TokenResult& token : tokens) scores_->push_back(token.logprob);
  }
  // The token that ends a completion is learnt too, so it is no stop token of the request.
  bool on_token(const serve::TokenResult& token) override {
    completion_->tokens.push_back(token.token);
    completion_->logprobs.push_back(token.logprob);
    completion_->is_whole = std::ranges::binary_search(stops_, token.token);
    return !completion_->is_whole;
  }
  void on_end(const serve::GenerationResult& result) override { countdown_.end(result); }

 private:
  Countdown& countdown_;
  const std::vector<std::int32_t>& stops_;
  Completion* completion_;
  std::vector<double>* scores_;
};

}  // namespace

Sampler::Sampler(const nn::ModelConfig& config, std::int64_t vocab_size,
                 std::vector<std::int32_t> stop_tokens, std::uint64_t seed, const SamplerRoom& room,
                 const nn::LoraOptions* lora)
    : stop_tokens_(std::move(stop_tokens)), seed_(seed) {
  const serve::StepRoom step_room = {
      .max_positions = room.context,
      .max_rows = std::max(kStepRows, room.slots),
      .num_blocks = room.slots * serve::StepModel::blocks_for(room.context)};
  auto model = std::make_unique<serve::StepModel>(open_device({.threads = room.threads}), config,
                                                  serve::Weights::kF32, step_room,
                                                  serve::StepLayers{}, serve::KeepStored{},
                                                  /*adapter_rank=*/0, /*ranks=*/nullptr, lora);
  model_ = model.get();
  constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();
  generator_ = std::make_unique<serve::BatchGenerator>(
      std::move(model), serve::BatchOptions{.slots = room.slots,
                                            .max_waiting = kNoBound,
                                            .max_waiting_tokens = kNoBound,
                                            .vocab_size = vocab_size});
}

void Sampler::set_values(const parallel::ParamStore& from) {
  std::unordered_map<std::string, const nn::Param*> by_name;
  for (const nn::Param* param : from.params()) by_name.emplace(param->name, param);
  model_->store().fill([&](const nn::Param& param, const Tensor& whole) {
    const auto at = by_name.find(param.name);
    ATOLL_CHECK(at != by_name.end(), "the trainer has no parameter {}", param.name);
    copy_now(at->second->value, whole);
  });
  ++version_;
}

void Sampler::load(const model_dir::ModelPath& from) {
  model_dir::load_parameters(from, model_->model(), model_->store(), model_->threads());
  ++version_;
}

std::vector<Completion> Sampler::complete(std::span<const SampleOrder> orders) {
  std::vector<Completion> completions(orders.size());
  if (orders.empty()) return completions;
  Countdown countdown(orders.size());
  for (std::size_t i = 0; i < orders.size(); ++i) {
    serve::GenerationRequest request;
    request.prompt.assign(orders[i].prompt.begin(), orders[i].prompt.end());
    request.max_new_tokens = orders[i].max_tokens;
    request.sampling.seed = seed_;
    request.sequence = orders[i].number;
    request.top_logprobs = 0;
    request.cache_key = std::to_string(version_);
    generator_->submit(std::move(request), std::make_shared<Listener>(countdown, stop_tokens_,
                                                                      &completions[i], nullptr));
  }
  countdown.wait();
  return completions;
}

std::vector<std::vector<double>> Sampler::score(std::span<const std::vector<std::int32_t>> texts) {
  std::vector<std::vector<double>> scores(texts.size());
  if (texts.empty()) return scores;
  Countdown countdown(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    serve::GenerationRequest request;
    request.prompt = texts[i];
    request.top_logprobs = 0;
    request.prompt_logprobs = true;
    // Its blocks are of no use to others, and the last token's row is not read.
    request.cache_key = std::to_string(version_);
    generator_->submit(std::move(request),
                       std::make_shared<Listener>(countdown, stop_tokens_, nullptr, &scores[i]));
  }
  countdown.wait();
  return scores;
}

}  // namespace atl::rl
