#include "atoll/parallel/schedule/schedule.h"

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
    num_stages_ = std::max(num_stages_, action.stage + 1);
  }
  ticks_.assign(static_cast<std::size_t>(num_micro_batches_) * num_stages_ * kNumActionKinds, -1);
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    ticks_[index_of(action.kind, action.stage, action.micro_batch)] = static_cast<std::int64_t>(i);
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

std::size_t Schedule::index_of(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const {
  return (static_cast<std::size_t>(micro_batch) * num_stages_ + stage) * kNumActionKinds +
         static_cast<std::size_t>(kind);
}

std::int64_t Schedule::tick_or_none(ActionKind kind, std::size_t stage,
                                    std::int64_t micro_batch) const {
  if (stage >= num_stages_ || micro_batch >= num_micro_batches_) return -1;
  return ticks_[index_of(kind, stage, micro_batch)];
}

std::int64_t Schedule::tick(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const {
  const std::int64_t tick = tick_or_none(kind, stage, micro_batch);
  ATOLL_CHECK(tick >= 0, "the list has no {} of stage {} and micro-batch {}", action_name(kind),
              stage, micro_batch);
  return tick;
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
