#pragma once

// What the tests of pipelines share: small models, their micro-batches, and one rank of a pipeline.

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/stage_cut.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 9;
constexpr std::int64_t kVocabulary = 61;

/// Heads of their own: see TiedEmbeddings for the others. Eight stages or more.
inline nn::ModelConfig small_model(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = kVocabulary;
  config.hidden_size = 12;
  config.num_layers = 6;
  config.heads = {.num_heads = 3, .num_kv_heads = family == "gpt2" ? 3 : 1, .head_dim = 4};
  config.intermediate_size = 20;
  config.max_positions = kLength;
  config.initializer_range = 0.3;
  config.activation = family == "gpt2" ? "gelu_new" : "silu";
  return config;
}

/// Each micro-batch has tokens and targets of its own; some targets have no loss.
class Batches {
 public:
  explicit Batches(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<std::uint64_t>(i);
      tokens_.push_back(atl::test::random_tokens({kBatch, kLength}, kVocabulary, 2 * number));
      targets_.push_back(atl::test::random_tokens({kBatch, kLength}, kVocabulary, 2 * number + 1));
      targets_.back()[i % kLength] = kIgnoreTarget;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      all_.push_back({tokens_[at], targets_[at], i * kBatch});
    }
  }
  std::span<const Batch> all() const { return all_; }

 private:
  std::vector<atl::test::OwnedTensor<std::int32_t>> tokens_, targets_;
  std::vector<Batch> all_;
};

/// What a step gives: the sum of losses, and the gradients by parameter.
struct Outcome {
  double loss = 0, evaluated = 0;
  std::map<std::string, std::string> gradients;  // bytes, by parameter
};

/// Which model, and how it is built.
struct ModelSetup {
  std::string family = "llama";
  nn::RecomputeMode recompute = nn::RecomputeMode::kNone;
  double dropout = 0.1;
  Dtype dtype = Dtype::kF32;
};

/// The whole model, without memory.
inline std::unique_ptr<nn::Model> build(const ModelSetup& setup) {
  return nn::build_model(
      small_model(setup.family),
      {.dtype = setup.dtype, .recompute = setup.recompute, .dropout = setup.dropout});
}

/// One rank's model, store, runner and memory.
class Rank {
 public:
  Rank(const ModelSetup& setup, const Pipeline* pipeline, int rank, RankSchedule schedule)
      : run_(1, 64),
        model_(nn::build_model(
            small_model(setup.family),
            {.dtype = setup.dtype, .recompute = setup.recompute, .dropout = setup.dropout})) {
    if (pipeline != nullptr) keep_stages(*model_, *pipeline, rank);
    store_ = std::make_unique<SingleStore>(*model_, true);
    runner_ = std::make_unique<Runner>(*model_, *store_, Use::kTrain, kBatch, kLength,
                                       std::move(schedule));
    store_->request(plan_);
    runner_->request(plan_);
    plan_.place();
    arena_ = std::make_unique<Arena>(*run_.device, plan_);
    store_->bind(*arena_);
    runner_->bind(*arena_);
    // By name: every rank draws what one rank does.
    store_->fill([](const nn::Param& param, const Tensor& whole) {
      const auto drawn =
          atl::test::random_tensor<float>(whole.shape(), std::hash<std::string>{}(param.name), 0.3);
      for (std::int64_t i = 0; i < drawn.size(); ++i) whole.data<float>()[i] = drawn[i];
    });
    run_.run.seed = 9;
    run_.run.loss_scale = 0.01;
  }

  Runner& runner() { return *runner_; }
  Run& run() { return run_; }
  nn::Model& model() { return *model_; }
  const MemoryPlan& plan() const { return plan_; }

  // A step, an evaluation, and a step again: nothing is left of the first.
  void train(std::span<const Batch> batches, std::size_t at_once, Outcome& outcome) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      outcome.loss = outcome.evaluated = 0;
      store_->begin_round({});
      for (std::size_t i = 0; i < batches.size(); i += at_once) {
        outcome.loss += runner_->train(run_, batches.subspan(i, at_once));
      }
      for (const Batch& batch : batches) outcome.evaluated += runner_->evaluate(run_, batch);
    }
    for (const nn::Param* param : store_->trained()) {
      const auto* bytes = static_cast<const char*>(param->grad.raw());
      outcome.gradients[param->name].assign(bytes, param->grad.bytes());
    }
  }

 private:
  atl::test::TestRun run_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<SingleStore> store_;
  std::unique_ptr<Runner> runner_;
  MemoryPlan plan_;
  std::unique_ptr<Arena> arena_;
};

/// The same step on one rank, as what others must equal.
inline Outcome one_rank(const ModelSetup& setup, std::int64_t micro_batches) {
  const std::size_t num_stages = build(setup)->stages.size();
  Rank rank(setup, nullptr, 0, alone(schedule_sequential(num_stages)));
  Outcome outcome;
  rank.train(Batches(micro_batches).all(), 1, outcome);
  return outcome;
}

/// Chunks of equal stages, the first ones having one more where they do not divide.
inline Pipeline some_pipeline(const PipelineSchedule& schedule, int ranks,
                              std::int64_t micro_batches, std::size_t num_stages) {
  const auto chunks = static_cast<std::size_t>(ranks * schedule.min_chunks);
  Pipeline pipeline = {ranks, micro_batches, {0}, schedule.folded};
  for (std::size_t c = 0; c < chunks; ++c) {
    pipeline.bounds.push_back(pipeline.bounds.back() + num_stages / chunks +
                              (c < num_stages % chunks ? 1 : 0));
  }
  return pipeline;
}

}  // namespace atl::parallel
