#pragma once

// How a run synchronises its steps with data-parallel ranks, with islands, or with workers that
// share parameter servers.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// How a run ended.
struct TrainOutcome {
  std::int64_t step = 0;               ///< optimizer steps of the run so far
  std::optional<Evaluation> held_out;  ///< at the last step; nothing: interrupted before it
  std::filesystem::path checkpoint;    ///< the last checkpoint
  int signal = 0;                      ///< the signal that ended it, else 0
};

/// The step that comes next.
struct Turn {
  std::int64_t step = 0;           ///< steps taken by the run, with this one
  std::int64_t schedule_step = 0;  ///< the step of the learning rate schedule
  std::int64_t steps_left =
      0;  ///< after it until the run ends, if islands stay as fast as they are
};

/// Decides which steps a run takes, and synchronises with others before, during and after each.
class Sync {
 public:
  virtual ~Sync() = default;

  /// Joins the others with a new model, or with the model of the checkpoint in `checkpoint`.
  virtual void open(const std::filesystem::path& checkpoint) = 0;
  /// Joins ranks that already train and have sent `hellos`. Only where ranks may come and go.
  virtual void join(const std::vector<Hello>& hellos) = 0;
  /// Begins the loop over steps.
  virtual void begin() = 0;
  /// Does the work between steps, and returns the next step; nothing: the run is over.
  virtual std::optional<Turn> next() = 0;
  /// Takes that step and counts it. Nothing: the step was broken off because ranks have changed.
  virtual std::optional<StepResult> step(const Turn& turn) = 0;
  /// Reports the step that was just taken, and does what other ranks have asked for.
  virtual void after(const StepResult& result) = 0;
  /// Ends the run: saves the last checkpoint, makes the last evaluation.
  virtual TrainOutcome end() = 0;
};

/// Makes the Sync that run.config asks for. `run` must outlive it, and be in its first world.
/// Throws Error(kUser) where the ranks do not fit.
std::unique_ptr<Sync> make_sync(TrainRun& run);

/// Counts a step, after which the run has taken `step` steps. Steps that others have taken since
/// the step before are counted as if each had as many tokens.
void account(TrainRun& run, const StepResult& result, std::int64_t step);

}  // namespace atl::train
