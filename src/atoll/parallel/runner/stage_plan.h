#pragma once

#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/parallel/runner/activation_slots.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/schedule/schedule.h"

namespace atl::parallel {

/// What a Runner's memory is planned for.
enum class Use {
  kTrain,     ///< forward and backward, and evaluation in between
  kEvaluate,  ///< forward to the losses
  kGenerate,  ///< forward with a KvCache, up to the head's input
};

/// The memory of one stage of a rank for the micro-batches of its list.
struct StagePlan {
  Spec input;  ///< of x
  nn::Footprint footprint;
  bool receives_input = false;  ///< x comes from another rank, and dx goes there
  bool sends_output = false;    ///< y goes to another rank, and dy comes from there
  ActivationSlots x, dx;        ///< where the input is received; otherwise the stage before has it
  ActivationSlots y, dy;        ///< not of the last stage of a model: its outputs stay
  ActivationSlots kept, owed;
  std::vector<TickSpan> forward_ticks, backward_ticks;  ///< when it needs scratch
};

/// The stages of a rank's model and what they say of themselves; no memory yet. `tokens`: what the
/// first stage of the whole model reads. Throws Error(kInternal) when the list leaves out a stage.
std::vector<StagePlan> read_stages(const nn::Model& model, Use use, const Spec& tokens,
                                   std::span<const Action> actions);

/// Plans their memory, from their footprints and from the list alone: a pure function. Each tensor
/// of each micro-batch lives from the action that makes it, or that its receive begins at, to the
/// last one that reads it, or until its send has ended.
void plan_memory(const nn::Model& model, Use use, const Schedule& schedule,
                 const std::vector<Transfer>& transfers, std::vector<StagePlan>& stages);

}  // namespace atl::parallel
