#pragma once

#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/parallel/runner/activation_slots.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/schedule/schedule.h"

namespace atl::parallel {

/// The use that a Runner's memory is planned for.
enum class Use {
  kTrain,     ///< forward and backward, and evaluation in between
  kEvaluate,  ///< forward to the losses
  kGenerate,  ///< forward with a KvCache, up to the head's input
};

/// The memory of one stage of a rank, for the micro-batches of the rank's list of actions.
struct StagePlan {
  Spec input;  ///< the spec of x
  nn::Footprint footprint;
  bool receives_input = false;  ///< x comes from another rank, and dx goes there
  bool sends_output = false;    ///< y goes to another rank, and dy comes from there
  ActivationSlots x, dx;        ///< if receives_input; else y and dy of the stage before are used
  ActivationSlots y, dy;        ///< not of the last stage of all: its outputs are permanent
  ActivationSlots kept, owed;   ///< see nn::Footprint
  std::vector<TickSpan> forward_ticks, backward_ticks;  ///< when the stage needs scratch memory
};

/// The specs, footprints and transfers of the stages of a rank's model, without slots and ticks.
/// `tokens`: the spec of a micro-batch's tokens. `actions`: the rank's list. Throws
/// Error(kInternal) when the list leaves out a stage.
std::vector<StagePlan> read_stages(const nn::Model& model, Use use, const Spec& tokens,
                                   std::span<const Action> actions);

/// Fills in the slots and ticks of `stages`: a pure function of the footprints and the schedule.
/// Each tensor of a micro-batch lives from the action that makes it (or at which its receive
/// begins) to the last action that reads it (or to the end of its send).
void plan_memory(const nn::Model& model, Use use, const Schedule& schedule,
                 const std::vector<Transfer>& transfers, std::vector<StagePlan>& stages);

}  // namespace atl::parallel
