#pragma once

#include <optional>
#include <string>
#include <vector>

#include "atoll/metrics/sink.h"
#include "atoll/plan/choice.h"
#include "atoll/train/config/recipe.h"

namespace atl::cli {

/// The overrides of a run on `ranks` ranks of this machine: with parallel.layout = auto, also those
/// of the layout that the planner chooses, which is the one in the run's directory where there is
/// one for as many ranks. Says in the log what it chose.
std::vector<std::string> with_layout(const std::string& recipe,
                                     const std::vector<std::string>& overrides, int ranks);

/// Compares the steps of a run with what the planner said of its layout.
class PredictionCheck final : public metrics::Sink {
 public:
  /// `choice` is the one in the run's directory.
  explicit PredictionCheck(const plan::Choice& choice) : choice_(choice) {}

  void write(const metrics::Record& record) override;
  void flush() override {}
  /// "planned 1.23 s a step, measured 1.31 s: 6% off"; empty before any line of a step. The
  /// median of the lines without the first, where there are others.
  std::string text() const;

 private:
  plan::Choice choice_;
  std::vector<double> step_ms_;
};

/// The choice in the run's directory, if it is the layout that `config` has on as many ranks.
std::optional<plan::Choice> choice_of(const train::TrainConfig& config, int ranks);

}  // namespace atl::cli
