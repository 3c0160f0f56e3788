#pragma once

// How the steps of a run meet those of others: of data-parallel ranks, of islands, of workers that
// share parameter servers.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/train/train_run.h"

namespace atl::train {

/// How a run ended.
struct TrainOutcome {
  std::int64_t step = 0;               ///< optimizer steps of the run so far
  std::optional<Evaluation> held_out;  ///< at the last step; nothing when interrupted before it
  std::filesystem::path checkpoint;    ///< the last one
  int signal = 0;                      ///< the signal that ended it, else 0
};

/// The step that comes next.
struct Turn {
  std::int64_t step = 0;           ///< how many the run has taken after it
  std::int64_t schedule_step = 0;  ///< of its learning rate
  std::int64_t steps_left =
      0;  ///< after it until the run ends, if islands stay as fast as they are
};

/// Which steps a run takes, and what it does with others before, in and after each.
class Sync {
 public:
  virtual ~Sync() = default;

  /// Joins others with what the model has: a new model, or that of the directory `checkpoint`.
  virtual void open(const std::filesystem::path& checkpoint) = 0;
  /// Joins ranks that train already and say `hellos`. Only where ranks come and go.
  virtual void join(const std::vector<Hello>& hellos) = 0;
  /// Begins the loop over steps.
  virtual void begin() = 0;
  /// Does what is due between steps, and returns which step comes next; nothing: the run is over.
  virtual std::optional<Turn> next() = 0;
  /// Takes that step and counts it. Nothing: it was broken off, as ranks have changed.
  virtual std::optional<StepResult> step(const Turn& turn) = 0;
  /// Tells of the step that was just taken, and does what the others want after it.
  virtual void after(const StepResult& result) = 0;
  /// Ends the run: the last checkpoint, the last evaluation.
  virtual TrainOutcome end() = 0;
};

/// That of run.config. `run` must outlive it, and be in its first world. Throws Error(kUser) where
/// its ranks do not fit.
std::unique_ptr<Sync> make_sync(TrainRun& run);

/// Counts a step that was made, after which the run has taken `step` of them. Steps that others
/// have taken meanwhile count as many tokens.
void account(TrainRun& run, const StepResult& result, std::int64_t step);

}  // namespace atl::train
