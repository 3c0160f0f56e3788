#pragma once

// The evaluations of a run on held-out text, and what follows from them.

#include <optional>

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Evaluates the model of a run. Every rank has one object, and all ranks make the same calls.
class Evaluations {
 public:
  /// `run` must outlive this.
  explicit Evaluations(TrainRun& run) : run_(run) {}

  /// Measures the held-out loss, reports it, and updates the early stop; nothing: a signal came.
  /// `is_repeated`: the log already has this loss.
  std::optional<Evaluation> evaluate(bool is_repeated);
  /// The same during the run, and also generates samples (eval.samples).
  void evaluate_in_passing();
  /// The evaluation of the last step. A run that had ended before prints it and logs nothing twice.
  std::optional<Evaluation> evaluate_last();
  /// Whether the held-out loss has not improved for so long that the run ends (train.early_stop).
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
