#pragma once

// Completions of prompts, and log-probabilities of texts, by the engine that serves models.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/model_dir/model_path.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::rl {

/// A prompt that is to be completed once.
struct SampleOrder {
  std::span<const std::int32_t> prompt;
  std::int64_t number = 0;      ///< names its random numbers: the same number, the same completion
  std::int64_t max_tokens = 0;  ///< of the completion
};

/// A completion with what ends it, where a stop token did.
struct Completion {
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;  ///< of each token when it was drawn, in nats
  bool is_whole = false;         ///< the last token is a stop token
};

/// What a sampler has room for.
struct SamplerRoom {
  std::int64_t context = 0;  ///< tokens of a prompt with its completion
  std::int64_t slots = 16;   ///< completions at once
  int threads = 0;           ///< 0: as many as the machine has
};

/// A model that samples with continuous batching, in f32 on a CPU. Draws are a pure function of the
/// seed, the number of a sample and the position. Log-probabilities have the bits that a step with
/// Run::row_stable computes for the same parameters.
class Sampler {
 public:
  /// `vocab_size`: ids below it may be drawn. `stop_tokens` end a completion. Parameters are zero
  /// until set_values() or load(). `lora`: the adapters that the trainer's model has; null: none.
  Sampler(const nn::ModelConfig& config, std::int64_t vocab_size,
          std::vector<std::int32_t> stop_tokens, std::uint64_t seed, const SamplerRoom& room,
          const nn::LoraOptions* lora = nullptr);

  /// Copies the values of parameters of the same names. No call is under way meanwhile. `from`
  /// holds whole parameters.
  void set_values(const parallel::ParamStore& from);
  /// Reads the values from a model directory.
  void load(const model_dir::ModelPath& from);

  /// Completes each. Throws Error(kNumeric) where the model's numbers are not finite.
  std::vector<Completion> complete(std::span<const SampleOrder> orders);
  /// The log-probabilities of the tokens of each text but the first, given those before; texts of
  /// two tokens or more.
  std::vector<std::vector<double>> score(std::span<const std::vector<std::int32_t>> texts);

 private:
  std::vector<std::int32_t> stop_tokens_;
  std::uint64_t seed_;
  std::int64_t version_ = 0;  // of the values: what was computed with others is not used again
  serve::StepModel* model_ = nullptr;  // of generator_
  std::unique_ptr<serve::BatchGenerator> generator_;
};

}  // namespace atl::rl
