#pragma once

// How well a run's model predicts the text that is held out.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/train/checkpoint/run_model.h"
#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/step/evaluate.h"

namespace atl::train {

/// An evaluation on the held-out parts of a run's corpora.
struct HeldOut {
  Evaluation whole;                ///< of all, every token counting the same
  std::vector<Evaluation> parts;   ///< of each corpus that holds something out
  std::vector<std::string> names;  ///< of these corpora
};

/// Evaluates `model` as eval.* says. `stop` is asked before each batch and after each corpus, and
/// must say the same to all ranks: nothing is returned once it says true. Every rank must call it.
std::optional<HeldOut> evaluate_held_out(const TrainConfig& config, const PreparedCorpus& corpus,
                                         const RunModel& model, const std::function<bool()>& stop);

}  // namespace atl::train
