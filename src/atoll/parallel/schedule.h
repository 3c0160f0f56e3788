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

/// "F", "B", "W", "receive input", ...
const char* action_name(ActionKind kind);
/// Is it F, B or W?
constexpr bool is_compute(ActionKind kind) {
  return kind <= ActionKind::kBackwardWeight;
}

/// One thing that a rank does, and with which of its sets of activations.
struct Action {
  ActionKind kind = ActionKind::kForward;
  std::size_t stage = 0;  ///< one of this rank's
  std::int64_t micro_batch = 0;
  /// Which of the stage's sets of activations the micro-batch uses from its F to its W. A stage has
  /// as many sets as micro-batches are in flight at once.
  std::size_t slot = 0;
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
  /// The sets of activations that a stage needs.
  std::size_t num_slots(std::size_t stage) const;

  /// When a stage's actions of a kind run that use this slot. Throw Error(kInternal) if none does.
  std::int64_t first_tick(ActionKind kind, std::size_t stage, std::size_t slot) const;
  std::int64_t last_tick(ActionKind kind, std::size_t stage, std::size_t slot) const;
  /// The first pass of one of `stages` that adds to gradients, and the last.
  const StagePass& first_gradients(std::span<const std::size_t> stages) const;
  const StagePass& last_gradients(std::span<const std::size_t> stages) const;

 private:
  void find_passes(const std::vector<bool>& gradients_in_forward);

  std::vector<Action> actions_;
  std::vector<StagePass> passes_;
  std::int64_t num_micro_batches_ = 0;
};

}  // namespace atl::parallel
