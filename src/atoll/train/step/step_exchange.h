#pragma once

// How the ranks of a layout compute one step together.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/ops/run.h"

namespace atl::train {

class TrainState;
struct MicroBatchResult;
struct PassInput;
struct StepProgress;

/// The communication of one step with the other ranks that share it. A rank alone communicates
/// nothing. Where there are several ranks, all of them must make the same calls.
class StepExchange {
 public:
  virtual ~StepExchange() = default;

  /// Forward and backward of this rank's micro-batches.
  virtual MicroBatchResult pass(const Run& run, const PassInput& input) = 0;
  /// Replaces this rank's losses by the losses of the whole step, in the order of micro-batches. A
  /// rank alone leaves its losses on their way to the host and reads them after the gradient norm,
  /// so it waits for the device only once in a step.
  virtual void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) = 0;
  /// Replaces the non-finite samples that this rank has found by the samples that any rank has
  /// found, in ascending order. Only in a step whose loss is not finite.
  virtual void nonfinite(std::vector<std::int64_t>& samples) = 0;
  /// Completes the sum of gradients.
  virtual void reduce(Run& run) = 0;
  /// The norm of the whole gradient, the same on all ranks.
  virtual double grad_norm(Run& run) = 0;
  /// Gets what the update needs, and records in `progress` that this rank is prepared. With `waits`
  /// it returns only when all ranks are prepared: from then on, the remaining ranks can make the
  /// update even if other ranks are lost.
  virtual void prepare(StepProgress& progress, bool waits) = 0;
  /// Makes the update of a step that was taken, or skips the update; `progress` describes the step.
  virtual void update(Run& run, StepProgress& progress) = 0;
  /// Sums the losses of an evaluation over ranks. Each loss is on one rank, and the other ranks
  /// have 0 in its place, so the sum is exact.
  virtual void sum(std::span<double> losses) = 0;
};

/// The exchange for the ranks that `state` is connected to; these and `state` must outlive it.
std::unique_ptr<StepExchange> make_step_exchange(TrainState& state);

}  // namespace atl::train
