#pragma once

// Pairs of answers without a step: their log-probabilities, and the loss of a model on them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/data/pairs/pair_samples.h"
#include "atoll/nn/preference_head.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// The facts of the samples of `samples`. `references`: by document; empty: all 0. Both must
/// outlive the result.
std::function<nn::SampleFacts(std::int64_t sample)> facts_of(const data::PairSamples& samples,
                                                             const std::vector<double>& references);

/// The log-probability of each document's answer, in nats, by document; 0 for a document that is
/// left out. `pairs` are in the order of their source. The state's source of facts must be empty.
/// Every rank that the state is connected to must call it, and all of them get the result.
std::vector<double> score_answers(TrainState& state, Stream& stream,
                                  const data::PairSamples& pairs);

/// How a model compares answers.
struct PairEvaluation {
  nn::PreferenceSums sums;
  std::int64_t tokens = 0;  ///< of the answers
  double seconds = 0;
};

/// The losses and rewards of `pairs`, which are in the order of their source and whose facts the
/// state's source gives. Where `max_tokens` > 0, only of the first pairs, until their answers have
/// so many tokens. `stop` is called before batches; when it returns true, the result covers the
/// pairs so far. Changes no parameter. Every rank must call it, as score_answers, and `stop` must
/// return the same on all ranks.
PairEvaluation evaluate_pairs(TrainState& state, Stream& stream, const data::PairSamples& pairs,
                              std::int64_t max_tokens, const std::function<bool()>& stop);

}  // namespace atl::train
