#pragma once

// How the ranks of a layout put one step together.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/train/step_passes.h"

namespace atl::train {

struct StepProgress;

/// What one step asks of the other ranks that share it. A rank alone exchanges nothing. Where there
/// are several, every one of them must call the same.
class StepExchange {
 public:
  virtual ~StepExchange() = default;

  /// Forward and backward of this rank's micro-batches.
  virtual MicroBatchResult pass(const Run& run, const PassInput& input) = 0;
  /// Replaces this rank's losses by those of the whole step, in the order of micro-batches. A rank
  /// alone leaves its losses on their way to the host: it reads them behind the gradient norm, and
  /// so waits for the device once in a step.
  virtual void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) = 0;
  /// Replaces the samples that this rank has found not to be finite by those that any rank has
  /// found, ascending. Only in a step whose loss is not finite.
  virtual void nonfinite(std::vector<std::int64_t>& samples) = 0;
  /// Completes the sum of gradients.
  virtual void reduce(Run& run) = 0;
  /// The norm of the whole gradient, the same on all ranks.
  virtual double grad_norm(Run& run) = 0;
  /// Gets what the update needs, and notes in `progress` that this rank is prepared. With `waits`
  /// it returns only when all ranks are: whatever becomes of them then, those that are left can
  /// make the update.
  virtual void prepare(StepProgress& progress, bool waits) = 0;
  /// Makes the update of a step that was taken, or skips that of another; `progress` describes it.
  virtual void update(Run& run, StepProgress& progress) = 0;
  /// Sums the losses of an evaluation over ranks, of which one has each. The sum is exact, as the
  /// others have 0 there.
  virtual void sum(std::span<double> losses) = 0;
};

/// That of a state which is connected to its ranks; both must outlive it.
std::unique_ptr<StepExchange> make_step_exchange(TrainState& state);

}  // namespace atl::train
