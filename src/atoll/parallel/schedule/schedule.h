#pragma once

// A step of one rank as data: which passes of which stages run in which order. Planned memory, the
// stores and the Runner all read the same list, so they cannot disagree.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace atl::parallel {

/// What a rank does to one stage and one micro-batch.
enum class ActionKind {
  kForward,          ///< F
  kBackwardInput,    ///< B: the gradient of the stage's input
  kBackwardWeight,   ///< W: adds to the gradients of the stage's parameters
  kReceiveInput,     ///< the stage's input comes from a peer
  kSendOutput,       ///< the stage's output goes to a peer
  kReceiveGradient,  ///< the gradient of the stage's output comes from a peer
  kSendGradient,     ///< the gradient of the stage's input goes to a peer
};
constexpr std::size_t kNumActionKinds = 7;

/// "F", "B", "W", "receive input", ...
const char* action_name(ActionKind kind);
/// Is it F, B or W?
constexpr bool is_compute(ActionKind kind) {
  return kind <= ActionKind::kBackwardWeight;
}

/// One thing that a rank does.
struct Action {
  ActionKind kind = ActionKind::kForward;
  std::size_t stage = 0;  ///< one of this rank's
  std::int64_t micro_batch = 0;
  int peer = -1;  ///< the rank that a transfer is with; -1: none

  bool operator==(const Action&) const = default;
};

/// Which way a pass over a stage goes.
enum class PassKind { kForward, kBackward };

/// Actions in a row for which a stage's parameters are there: an F, a B and the W that follows it,
/// or one of these two alone.
struct StagePass {
  std::size_t number = 0;  ///< in the order of the schedule, from 0
  std::size_t stage = 0;
  PassKind kind = PassKind::kForward;
  std::int64_t micro_batch = 0;
  std::int64_t first_tick = 0, last_tick = 0;
  /// It adds to the gradients of the stage's parameters.
  bool makes_gradients = false;
  /// It is the last that does.
  bool completes_gradients = false;
};

/// The actions of one rank in their order. A tick is an action's place in the list.
class Schedule {
 public:
  /// Nothing runs: for a store that has everything all the time.
  Schedule() = default;
  /// `gradients_in_forward`: for each stage, Footprint::gradients_in_forward; empty: none has it.
  explicit Schedule(std::vector<Action> actions,
                    const std::vector<bool>& gradients_in_forward = {});

  std::span<const Action> actions() const { return actions_; }
  std::span<const StagePass> passes() const { return passes_; }
  std::int64_t num_micro_batches() const { return num_micro_batches_; }
  /// One more than the highest stage.
  std::size_t num_stages() const { return num_stages_; }

  /// Whether the list has this action.
  bool has(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const {
    return tick_or_none(kind, stage, micro_batch) >= 0;
  }
  /// When it runs. Throws Error(kInternal) if it does not.
  std::int64_t tick(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const;
  /// The first pass of one of `stages` that adds to gradients, and the last.
  const StagePass& first_gradients(std::span<const std::size_t> stages) const;
  const StagePass& last_gradients(std::span<const std::size_t> stages) const;

 private:
  std::int64_t tick_or_none(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const;
  std::size_t index_of(ActionKind kind, std::size_t stage, std::int64_t micro_batch) const;
  void find_passes(const std::vector<bool>& gradients_in_forward);

  std::vector<Action> actions_;
  std::vector<StagePass> passes_;
  std::int64_t num_micro_batches_ = 0;
  std::size_t num_stages_ = 0;
  std::vector<std::int64_t> ticks_;  // by micro-batch, stage and kind; -1: it does not run
};

}  // namespace atl::parallel
