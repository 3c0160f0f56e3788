#pragma once

// What the tests of this folder share: tiny models with their memory, ready to be trained.

#include <cstdint>
#include <functional>
#include <string>

#include "atoll/ops/testing.h"
#include "atoll/train/step/step.h"

namespace atl::train::testing {

/// A tiny model of `family` ("llama", "gpt2", "mixtral"), its values far enough from zero to
/// matter.
inline nn::ModelConfig tiny_model(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 61;
  config.hidden_size = 24;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = family == "gpt2" ? 4 : 2, .head_dim = 6};
  config.intermediate_size = 40;
  config.max_positions = 32;
  config.initializer_range = 0.2;
  if (family == "mixtral") {
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = config.intermediate_size};
  }
  if (family == "gpt2") {
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  }
  return config;
}

/// A TrainState with its device, and one global batch of eight made-up samples.
struct Bench {
  static constexpr std::int64_t kSamples = 8;

  explicit Bench(const StateOptions& options, int threads = 2)
      : run(threads, 1 << 20),
        state(options),
        tokens(test::random_tokens({kSamples, options.context}, options.model.vocab_size, 1)),
        targets(test::random_tokens({kSamples, options.context}, options.model.vocab_size, 2)) {
    state.allocate(*run.device);
    state.store().initialise(run, 5);
    if (options.training) state.optimizer().init_masters(run, state.store().values());
  }

  /// Eight samples, from `first_sample` on, in micro-batches.
  StepResult step(StepOptions options = {}, std::int64_t first_sample = 0,
                  const std::function<void()>& before_batch = {}) {
    const std::int64_t rows = state.options().micro_batch;
    options.num_micro_batches = kSamples / rows;
    std::int64_t at = 0;
    return take_step(state, run.stream, options, [&] {
      if (before_batch) before_batch();
      Batch batch = {tokens.view().rows(at, at + rows), targets.view().rows(at, at + rows),
                     first_sample + at};
      batch.step_targets = step_targets;
      at += rows;
      return batch;
    });
  }

  /// The bytes of a tensor.
  static std::string bytes(const Tensor& tensor) {
    return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
  }
  std::string values() { return bytes(state.store().values()); }
  /// The optimizer's moments, one after the other.
  std::string moments() {
    std::string all;
    for (const optim::StateTensor& piece : state.optimizer().state()) all += bytes(piece.tensor);
    return all;
  }

  test::TestRun run;
  TrainState state;
  test::OwnedTensor<std::int32_t> tokens, targets;
  std::int64_t step_targets = 0;  ///< Batch::step_targets of every batch
};

}  // namespace atl::train::testing
