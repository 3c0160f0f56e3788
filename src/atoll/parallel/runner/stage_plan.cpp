#include "atoll/parallel/runner/stage_plan.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

bool has_kind(std::span<const Action> actions, ActionKind kind, std::size_t stage) {
  return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
    return action.kind == kind && action.stage == stage;
  });
}

// Adds a tick to ascending spans. A tick right behind the last span extends that span.
void add_tick(std::vector<TickSpan>& spans, std::int64_t tick) {
  if (!spans.empty() && spans.back().last + 1 == tick) {
    spans.back().last = tick;
  } else {
    spans.push_back({tick, tick});
  }
}

// The ticks at which the tensors of a stage live.
class Lives {
 public:
  Lives(const Schedule& schedule, const std::vector<Transfer>& transfers, Use use,
        const std::vector<StagePlan>& stages)
      : schedule_(schedule), use_(use), stages_(stages), transfers_(schedule.actions().size()) {
    for (const Transfer& at : transfers) transfers_[static_cast<std::size_t>(at.tick)] = at;
  }

  template <typename LifeOf>
  std::vector<TickSpan> each(LifeOf&& life_of) const {
    std::vector<TickSpan> lives;
    for (std::int64_t i = 0; i < schedule_.num_micro_batches(); ++i) lives.push_back(life_of(i));
    return lives;
  }
  TickSpan kept(std::size_t stage, std::int64_t i) const {
    const ActionKind end = use_ == Use::kTrain ? ActionKind::kBackwardWeight : ActionKind::kForward;
    return {tick(ActionKind::kForward, stage, i), tick(end, stage, i)};
  }
  TickSpan owed(std::size_t stage, std::int64_t i) const {
    return {tick(ActionKind::kBackwardInput, stage, i),
            tick(ActionKind::kBackwardWeight, stage, i)};
  }
  TickSpan received_input(std::size_t stage, std::int64_t i) const {
    return {transfer(ActionKind::kReceiveInput, stage, i).begin,
            last_use(stages_[stage].footprint.need_x, stage, i)};
  }
  TickSpan sent_gradient(std::size_t stage, std::int64_t i) const {
    return {tick(ActionKind::kBackwardInput, stage, i),
            transfer(ActionKind::kSendGradient, stage, i).end - 1};
  }
  TickSpan output(std::size_t stage, std::int64_t i) const {
    const std::int64_t last = last_use(stages_[stage].footprint.need_y, stage, i);
    const std::int64_t taken = stages_[stage].sends_output
                                   ? transfer(ActionKind::kSendOutput, stage, i).end - 1
                                   : last_use(stages_[stage + 1].footprint.need_x, stage + 1, i);
    return {tick(ActionKind::kForward, stage, i), std::max(last, taken)};
  }
  TickSpan output_gradient(std::size_t stage, std::int64_t i) const {
    const std::int64_t made = stages_[stage].sends_output
                                  ? transfer(ActionKind::kReceiveGradient, stage, i).begin
                                  : tick(ActionKind::kBackwardInput, stage + 1, i);
    return {made, std::max(tick(ActionKind::kBackwardInput, stage, i),
                           last_use(stages_[stage].footprint.need_dy, stage, i))};
  }

 private:
  std::int64_t tick(ActionKind kind, std::size_t stage, std::int64_t i) const {
    return schedule_.tick(kind, stage, i);
  }
  const Transfer& transfer(ActionKind kind, std::size_t stage, std::int64_t i) const {
    return transfers_[static_cast<std::size_t>(tick(kind, stage, i))];
  }
  // The last tick at which a stage reads a tensor for which it declared this need (Footprint).
  std::int64_t last_use(unsigned need, std::size_t stage, std::int64_t i) const {
    ActionKind kind = ActionKind::kForward;
    if (use_ == Use::kTrain && need != 0) {
      kind =
          (need & nn::kForWeight) != 0 ? ActionKind::kBackwardWeight : ActionKind::kBackwardInput;
    }
    return tick(kind, stage, i);
  }

  const Schedule& schedule_;
  Use use_;
  const std::vector<StagePlan>& stages_;
  std::vector<Transfer> transfers_;  // by tick
};

void plan_stage(StagePlan& at, std::size_t stage, bool is_last, const std::string& name, Use use,
                const Lives& lives) {
  const auto slots = [&](const char* what, std::vector<Spec> specs,
                         TickSpan (Lives::*life)(std::size_t, std::int64_t) const) {
    return ActivationSlots(name + what, std::move(specs),
                           lives.each([&](std::int64_t i) { return (lives.*life)(stage, i); }));
  };
  const nn::Footprint& footprint = at.footprint;
  const bool trains = use == Use::kTrain;
  if (at.receives_input) {
    at.x = slots(" input", {at.input}, &Lives::received_input);
    if (trains) at.dx = slots(" input gradient", {at.input}, &Lives::sent_gradient);
  }
  if (at.sends_output || !is_last) {
    at.y = slots(" output", {footprint.y}, &Lives::output);
    if (trains) at.dy = slots(" output gradient", {footprint.y}, &Lives::output_gradient);
  }
  at.kept = slots(" kept", footprint.kept, &Lives::kept);
  if (trains) at.owed = slots(" owed", footprint.owed, &Lives::owed);
}

}  // namespace

std::vector<StagePlan> read_stages(const nn::Model& model, Use use, const Spec& tokens,
                                   std::span<const Action> actions) {
  // For generation the caller runs the head: the list of the rank with the head leaves it out.
  std::size_t num_stages = use == Use::kGenerate ? 0 : model.stages.size();
  for (const Action& action : actions) num_stages = std::max(num_stages, action.stage + 1);
  std::vector<StagePlan> stages(num_stages);
  Spec x = tokens;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    StagePlan& at = stages[i];
    ATOLL_CHECK(has_kind(actions, ActionKind::kForward, i), "the list leaves out stage {}", i);
    at.receives_input = has_kind(actions, ActionKind::kReceiveInput, i);
    at.sends_output = has_kind(actions, ActionKind::kSendOutput, i);
    // Every stage but the first reads the residual stream: with tensor parallelism, this rank's
    // rows of it.
    if (at.receives_input) {
      const std::int64_t rows = tokens.shape.dim(1) / model.options.tensor_size;
      x = {model.options.dtype, {tokens.shape.dim(0), rows, model.config.hidden_size}};
    }
    at.input = x;
    at.footprint = model.stages[i]->plan(x);
    x = at.footprint.y;
  }
  return stages;
}

void plan_memory(const nn::Model& model, Use use, const Schedule& schedule,
                 const std::vector<Transfer>& transfers, std::vector<StagePlan>& stages) {
  const Lives lives(schedule, transfers, use, stages);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    plan_stage(stages[i], i, i + 1 == stages.size(), model.stage_names[i], use, lives);
  }
  for (std::size_t t = 0; t < schedule.actions().size(); ++t) {
    const Action& action = schedule.actions()[t];
    if (!is_compute(action.kind)) continue;
    StagePlan& at = stages[action.stage];
    const bool forward = action.kind == ActionKind::kForward;
    add_tick(forward ? at.forward_ticks : at.backward_ticks, static_cast<std::int64_t>(t));
  }
}

}  // namespace atl::parallel
