#pragma once

// What `atoll rl` trains on: completions of the policy itself, with what they earned.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/metrics/jsonl_sink.h"
#include "atoll/nn/policy_head.h"
#include "atoll/rl/policy_batches.h"
#include "atoll/rl/prompts.h"
#include "atoll/rl/rewards.h"
#include "atoll/rl/rollout.h"
#include "atoll/rl/sampler.h"
#include "atoll/train/loop/step_source.h"
#include "atoll/train/loop/train_run.h"

namespace atl::rl {

/// Reinforcement learning with rewards that are checked (GRPO, Shao et al. 2024). Each step takes
/// the next prompts of the run's order, has the model complete each `rl.group` times, rewards the
/// completions and gives each token of them the advantage of its completion within its group.
/// Which prompts a step has, and every draw, is a pure function of (run.seed, step): a run that was
/// killed goes on with the same bits, and no prompt is lost or taken twice.
class PolicySource final : public train::StepSource {
 public:
  /// `config` must outlive this. Reads the prompts: throws Error(kUser) for rows, patterns, schemas
  /// and models that do not fit.
  explicit PolicySource(const train::TrainConfig& config);
  ~PolicySource() override;

  train::PreparedCorpus corpus() override;
  void change(nn::Model& model) override;
  void open(train::TrainRun& run, const std::filesystem::path& checkpoint) override;
  std::function<Batch()> begin_step(train::TrainRun& run) override;
  void end_step(train::TrainRun& run, const train::StepResult& result) override;

  const std::vector<Prompt>& prompts() const { return prompts_; }

 private:
  void write_prompts(const std::filesystem::path& directory, const data::SourceEntry& source) const;
  void open_reference(train::TrainRun& run);
  // The rollout of `step`, sampled from the sampler's values now.
  Rollout sample(std::int64_t step, std::int64_t weights);
  void reward(Rollout& rollout) const;
  void score(Rollout& rollout);
  // The rollout of the step under way; samples what is to be sampled.
  Rollout take_rollout(const train::TrainRun& run);
  // Waits for the rollout that is being sampled beside a step.
  void collect();
  void set_values(train::TrainRun& run);
  void share(train::TrainRun& run, const Rollout& rollout);
  void log_completions(const Rollout& rollout);
  void warn_without_signal(const train::TrainRun& run);
  train::ExtraPart pending();

  const train::TrainConfig& config_;
  model_dir::ModelPath model_path_;
  Tokenizer tokenizer_;
  std::vector<std::int32_t> stop_tokens_;
  std::vector<Prompt> prompts_;
  PromptOrder order_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Sampler> reference_;  // null: rl.kl is 0
  std::optional<PolicyBatches> batches_;
  std::vector<std::int64_t> samples_;  // of this rank, in a step
  std::unique_ptr<metrics::JsonlSink> completions_;
  std::deque<Rollout> waiting_;  // rl.async: sampled, ascending by step
  std::future<Rollout> sampling_;
  std::int64_t steps_without_signal_ = 0;  // in a row

  // Of the step under way, over all ranks.
  struct Totals {
    std::vector<double> rewards;  // of each sample of the step
    std::vector<double> kinds;    // sums of each kind of reward
    double tokens = 0;
    double cut = 0;  // completions that did not end by themselves
    std::int64_t weights = 0;
    double sampling_seconds = 0, reward_seconds = 0;
  };
  Totals totals_;
};

}  // namespace atl::rl
