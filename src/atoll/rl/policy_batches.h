#pragma once

// A step's completions as the micro-batches that the trainer takes.

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/nn/policy_head.h"
#include "atoll/rl/prompts.h"
#include "atoll/rl/rollout.h"
#include "atoll/tensor/batch.h"

namespace atl::rl {

/// The shape of a step on one rank.
struct StepShape {
  std::int64_t batch_size = 0;   ///< sequences of a step, over all ranks
  std::int64_t micro_batch = 0;  ///< sequences of a micro-batch
  std::int64_t context = 0;
  std::vector<std::int64_t> micro_batches;  ///< numbers of those of this rank, in its order

  /// The numbers, in the step, of this rank's sequences, in its order.
  std::vector<std::int64_t> samples() const;
};

/// Holds the memory of the micro-batches of one step: each sequence is a prompt with its
/// completion, and each token of the completion a target.
class PolicyBatches {
 public:
  explicit PolicyBatches(StepShape shape);

  /// Takes the samples of a step, in the order of shape.samples(), with the advantage of each.
  /// `step_tokens`: of all completions of the step, on all ranks.
  void fill(const Rollout& rollout, const std::vector<Prompt>& prompts,
            std::span<const double> advantages, std::int64_t step_tokens);
  /// The micro-batches one after another, each valid until fill().
  Batch next();
  /// Of the micro-batch whose row 0 is this sample of the run.
  nn::PolicyTokens tokens(std::int64_t first_sample);

  /// The outcomes of all tokens of completions of this rank, after the step's passes.
  template <typename Take>
  void for_each_outcome(Take&& take) const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      if (targets_[i] != kIgnoreTarget) take(outcomes_[i], facts_[i]);
    }
  }

 private:
  void fill_row(std::size_t row, const Sample& sample, const Prompt& prompt, double advantage);
  std::size_t rows_of_micro_batch() const {
    return static_cast<std::size_t>(shape_.micro_batch * shape_.context);
  }

  StepShape shape_;
  std::int64_t step_ = 0;
  std::int64_t step_tokens_ = 0;
  std::size_t next_ = 0;                        // of shape_.micro_batches
  std::vector<std::int32_t> tokens_, targets_;  // (sequences of this rank, context)
  std::vector<ops::DrawnTokenFacts> facts_;
  std::vector<ops::PolicyOutcome> outcomes_;
};

}  // namespace atl::rl
