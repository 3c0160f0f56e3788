#pragma once

// What is sampled and rewarded for one step.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/rl/sampler.h"

namespace atl::rl {

/// One completion of a step, on the rank that trains on it.
struct Sample {
  std::int64_t number = 0;  ///< in the step, from 0: group after group
  std::int64_t prompt = 0;  ///< the number of its row
  Completion completion;
  std::vector<double> rewards;    ///< of each kind, unweighted
  double reward = 0;              ///< their weighted sum
  std::vector<double> reference;  ///< log-probability of each token by the reference; may be empty
};

/// This rank's completions of a step, in the order of its micro-batches.
struct Rollout {
  std::int64_t step = 0;     ///< from 0
  std::int64_t weights = 0;  ///< steps that the weights had taken that sampled it
  std::vector<Sample> samples;
  double sampling_seconds = 0;
  double reward_seconds = 0;
};

/// As JSON, for a checkpoint that has batches which are sampled and not trained on yet. Numbers
/// come back with the same bits.
std::string to_json(std::span<const Rollout> rollouts);
/// The reverse. Throws Error(kDamaged) naming `origin` for anything else.
std::vector<Rollout> rollouts_from_json(const std::string& json, const std::string& origin);

}  // namespace atl::rl
