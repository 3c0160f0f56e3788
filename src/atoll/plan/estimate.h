#pragma once

#include <cstdint>

#include "atoll/plan/figures.h"
#include "atoll/plan/layout.h"
#include "atoll/plan/stage_seconds.h"
#include "atoll/train/step/state.h"

namespace atl::plan {

/// Bytes that a rank sends in a step, the one that sends most, by what they are for.
struct SentBytes {
  double data = 0;     ///< gradients and parameters between data-parallel ranks
  double tensor = 0;   ///< rows between ranks that share products
  double stages = 0;   ///< edges between the stages of a pipeline
  double context = 0;  ///< around attention, between ranks that share sequences
  double experts = 0;  ///< around experts, and gradients, between ranks that share experts
};

/// What one step of a layout takes.
struct Estimate {
  double step_seconds = 0;
  double passes_seconds = 0;   ///< of that: forward and backward, waits of a pipeline included
  double tensor_seconds = 0;   ///< of that: rows between ranks that share products
  double context_seconds = 0;  ///< of that: around attention, between ranks that share sequences
  double expert_seconds = 0;   ///< of that: around experts, between ranks that share them
  double reduce_seconds = 0;   ///< gathers and sums of data-parallel ranks that no pass hides
  double update_seconds = 0;   ///< norm and optimizer
  double bubble = 0;           ///< the share of the ranks' time in passes in which a pipeline waits
  SentBytes sent;
};

/// The time of one step by figures alone: passes from their ops, a pipeline from its lists, which
/// run on a clock; collectives as latency and bytes by link. `options`: of the run's rank 0;
/// `model`: its stages, whole; `micro_batches`: of all ranks in a step. A pure function.
Estimate estimate(const Figures& figures, const Layout& layout, const train::StateOptions& options,
                  const StageModel& model, std::int64_t micro_batches);

/// No layout of these sizes takes less: passes without any wait.
double least_seconds(const Figures& figures, const Layout& layout, const StageModel& model,
                     std::int64_t micro_batches);

}  // namespace atl::plan
