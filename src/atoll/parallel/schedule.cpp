#include "atoll/parallel/schedule.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

// B and the W that follows it are one pass: the stage's parameters are asked for once.
bool continues(const Action& before, const Action& next) {
  return before.kind == ActionKind::kBackwardInput && next.kind == ActionKind::kBackwardWeight &&
         before.stage == next.stage && before.micro_batch == next.micro_batch;
}

bool contains(std::span<const std::size_t> stages, std::size_t stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

}  // namespace

const char* action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackwardInput:
      return "B";
    case ActionKind::kBackwardWeight:
      return "W";
    case ActionKind::kReceiveInput:
      return "receive input";
    case ActionKind::kSendOutput:
      return "send output";
    case ActionKind::kReceiveGradient:
      return "receive gradient";
    case ActionKind::kSendGradient:
      return "send gradient";
  }
  return "";
}

Schedule::Schedule(std::vector<Action> actions, const std::vector<bool>& gradients_in_forward)
    : actions_(std::move(actions)) {
  for (const Action& action : actions_) {
    num_micro_batches_ = std::max(num_micro_batches_, action.micro_batch + 1);
  }
  find_passes(gradients_in_forward);
}

void Schedule::find_passes(const std::vector<bool>& gradients_in_forward) {
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    if (!is_compute(action.kind)) continue;
    const auto tick = static_cast<std::int64_t>(i);
    const bool makes_gradients =
        action.kind == ActionKind::kBackwardWeight ||
        (action.kind == ActionKind::kForward && action.stage < gradients_in_forward.size() &&
         gradients_in_forward[action.stage]);
    if (i > 0 && continues(actions_[i - 1], action)) {
      passes_.back().last_tick = tick;
      passes_.back().makes_gradients = true;
      continue;
    }
    const PassKind kind =
        action.kind == ActionKind::kForward ? PassKind::kForward : PassKind::kBackward;
    passes_.push_back({.number = passes_.size(),
                       .stage = action.stage,
                       .kind = kind,
                       .micro_batch = action.micro_batch,
                       .first_tick = tick,
                       .last_tick = tick,
                       .makes_gradients = makes_gradients});
  }
  std::vector<std::size_t> complete;
  for (auto pass = passes_.rbegin(); pass != passes_.rend(); ++pass) {
    if (!pass->makes_gradients || contains(complete, pass->stage)) continue;
    pass->completes_gradients = true;
    complete.push_back(pass->stage);
  }
}

std::size_t Schedule::num_slots(std::size_t stage) const {
  std::size_t count = 0;
  for (const Action& action : actions_) {
    if (action.stage == stage) count = std::max(count, action.slot + 1);
  }
  return count;
}

std::int64_t Schedule::first_tick(ActionKind kind, std::size_t stage, std::size_t slot) const {
  const auto at = std::find_if(actions_.begin(), actions_.end(), [&](const Action& action) {
    return action.kind == kind && action.stage == stage && action.slot == slot;
  });
  ATOLL_CHECK(at != actions_.end(), "no {} of stage {} uses slot {}", action_name(kind), stage,
              slot);
  return at - actions_.begin();
}

std::int64_t Schedule::last_tick(ActionKind kind, std::size_t stage, std::size_t slot) const {
  const auto at = std::find_if(actions_.rbegin(), actions_.rend(), [&](const Action& action) {
    return action.kind == kind && action.stage == stage && action.slot == slot;
  });
  ATOLL_CHECK(at != actions_.rend(), "no {} of stage {} uses slot {}", action_name(kind), stage,
              slot);
  return actions_.rend() - at - 1;
}

const StagePass& Schedule::first_gradients(std::span<const std::size_t> stages) const {
  const auto at = std::find_if(passes_.begin(), passes_.end(), [&](const StagePass& pass) {
    return pass.makes_gradients && contains(stages, pass.stage);
  });
  ATOLL_CHECK(at != passes_.end(), "no pass makes these gradients");
  return *at;
}

const StagePass& Schedule::last_gradients(std::span<const std::size_t> stages) const {
  const auto at = std::find_if(passes_.rbegin(), passes_.rend(), [&](const StagePass& pass) {
    return pass.makes_gradients && contains(stages, pass.stage);
  });
  ATOLL_CHECK(at != passes_.rend(), "no pass makes these gradients");
  return *at;
}

}  // namespace atl::parallel
