#pragma once

// What tests of a BatchGenerator share: small models, and a listener that waits.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/rng.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::test {

inline constexpr std::int64_t kTinyVocab = 61;

/// A model of a family with windows, experts or neither, of two layers.
inline nn::ModelConfig tiny_config(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = kTinyVocab;
  config.hidden_size = 24;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  config.intermediate_size = 40;
  config.max_positions = 160;
  config.initializer_range = 0.3;  // far from zero: tokens and positions matter
  if (family == "gpt2") {
    config.heads.num_kv_heads = 4;
    config.intermediate_size = 96;
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  }
  if (family == "gpt_neox") {
    config.heads.num_kv_heads = 4;
    config.rotary_dim = 4;
    config.attention_bias = config.mlp_bias = true;
  }
  if (family == "mistral") config.sliding_window = 24;
  if (family == "mixtral") {
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 16};
  }
  if (family == "gpt_oss") {
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 16};
    config.attention_bias = true;
    config.sliding_window = 24;
    config.windowed_layers = {true, false};
  }
  return config;
}

/// A model with such weights, the same for the same configuration.
inline std::unique_ptr<serve::StepModel> tiny_model(const nn::ModelConfig& config,
                                                    const serve::StepRoom& room, int threads = 2,
                                                    serve::Weights weights = serve::Weights::kF32) {
  auto model = std::make_unique<serve::StepModel>(open_cpu(threads), config, weights, room);
  model->initialise(5);
  return model;
}

/// Collects what becomes of one request.
class Collector final : public serve::GenerationListener {
 public:
  void on_prompt(std::span<const serve::TokenResult> tokens) override {
    const std::lock_guard lock(mutex_);
    prompt_.assign(tokens.begin(), tokens.end());
  }
  bool on_token(const serve::TokenResult& token) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(token);
    changed_.notify_all();
    return stop_after_ == 0 || tokens_.size() < stop_after_;
  }
  void on_end(const serve::GenerationResult& result) override {
    const std::lock_guard lock(mutex_);
    result_ = result;
    ++ends_;
    changed_.notify_all();
  }

  /// Has on_token() say that it is enough with this one.
  void stop_after(std::size_t count) { stop_after_ = count; }
  /// Waits for its end.
  serve::GenerationResult wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ends_ > 0; });
    return result_;
  }
  /// Waits for so many tokens, or its end.
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ > 0 || tokens_.size() >= count; });
  }
  int ends() const {
    const std::lock_guard lock(mutex_);
    return ends_;
  }
  /// After its end.
  const std::vector<serve::TokenResult>& tokens() const { return tokens_; }
  const std::vector<serve::TokenResult>& prompt() const { return prompt_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t stop_after_ = 0;
  std::vector<serve::TokenResult> tokens_, prompt_;
  serve::GenerationResult result_;
  int ends_ = 0;
};

}  // namespace atl::test
