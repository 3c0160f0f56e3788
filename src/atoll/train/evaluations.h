#pragma once

// The evaluations of a run on held-out text, and what follows from them.

#include <optional>

#include "atoll/train/train_run.h"

namespace atl::train {

/// Evaluates the model of a run. Every rank has one and calls the same.
class Evaluations {
 public:
  /// `run` must outlive this.
  explicit Evaluations(TrainRun& run) : run_(run) {}

  /// The held-out loss now, which is reported and judged; nothing: a signal came. Where
  /// `is_repeated`, the log has it already.
  std::optional<Evaluation> evaluate(bool is_repeated);
  /// The same while the run goes on, with samples (eval.samples).
  void evaluate_in_passing();
  /// That of the last step. A run that had ended says it again, and records nothing twice.
  std::optional<Evaluation> evaluate_last();
  /// Whether losses have not become lower for so long that the run ends (train.early_stop).
  bool stops_early() const;
  /// Says which checkpoint is the best, when a run has ended.
  void tell_best() const;

 private:
  void judge(const Evaluation& held_out);
  void sample();

  TrainRun& run_;
  std::optional<Evaluation> last_;  // of run_.evaluated_step
};

}  // namespace atl::train
