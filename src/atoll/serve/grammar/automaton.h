#pragma once

// A grammar's pushdown automaton, made deterministic while it runs: a state is the set of all
// stacks that the text so far may have left. Stacks share their tails, and equal stacks and equal
// states are kept once, so a state is a number, and a step that was taken before is a look-up.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/serve/grammar/grammar.h"
#include "atoll/serve/grammar/number_table.h"

namespace atl::serve::grammar {

/// The number of a stack: of its topmost frame.
using StackId = std::int32_t;
/// The number of a state: of a set of stacks.
using StateId = std::int32_t;

/// The stack of a text that may end.
inline constexpr StackId kEmptyStack = 0;
/// A stack of which nothing is known: what lies below a part that is looked at alone.
inline constexpr StackId kUnknownStack = 1;
/// The state without a stack: no text goes on from here.
inline constexpr StateId kDeadState = 0;

/// The top of a stack: where matching goes on, and what lies below.
struct Frame {
  std::int32_t item = -1;  ///< index in Grammar::items
  std::int32_t count = 0;  ///< of a repetition: how many times it has been entered
  StackId below = kEmptyStack;

  bool operator==(const Frame&) const = default;
};

/// A state in a form that another automaton of the same grammar can take: frames refer to the
/// frames before them, numbered from 2 on.
struct PortableState {
  std::vector<Frame> frames;
  std::vector<StackId> stacks;
};

/// The states that have been met. Not thread-safe.
class Automaton {
 public:
  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  /// The state of the empty text.
  StateId start();
  /// The state after one more byte.
  StateId step(StateId state, std::uint8_t byte) {
    const std::size_t at = static_cast<std::size_t>(state) * num_classes_ + byte_class_[byte];
    const StateId next = steps_[at];
    return next >= 0 ? next : take_step(state, byte_class_[byte]);
  }
  /// The state of one stack alone, whatever its topmost frame is at.
  StateId state_of(StackId stack);

  /// The stacks of a state, ascending; each is kEmptyStack, kUnknownStack or at an item of bytes.
  std::span<const StackId> stacks(StateId state) const;
  /// Whether the text may end here.
  bool may_end(StateId state) const { return begins_with(state, kEmptyStack); }
  /// Whether kUnknownStack is one of the stacks.
  bool has_unknown(StateId state) const { return has_unknown_[static_cast<std::size_t>(state)]; }

  const Frame& frame(StackId stack) const { return frames_[static_cast<std::size_t>(stack)]; }
  /// The stack with this topmost frame.
  StackId stack_of(const Frame& frame);
  const Grammar& grammar() const { return *grammar_; }

  /// Frames looked at since the beginning: what a walk has cost.
  std::int64_t work() const { return work_; }
  /// Whether some state has fewer stacks than the grammar gives it, as it would have too many.
  bool was_cut() const { return was_cut_; }
  /// Bytes that all states and stacks take, nearly.
  std::size_t bytes() const;

  /// See PortableState.
  PortableState export_state(StateId state) const;
  StateId import_state(const PortableState& state);

 private:
  bool begins_with(StateId state, StackId stack) const {
    const auto all = stacks(state);
    return !all.empty() && all.front() == stack;
  }
  const Item& item(std::int32_t index) const {
    return grammar_->items[static_cast<std::size_t>(index)];
  }
  StateId take_step(StateId state, std::uint8_t byte_class);
  /// Adds what `stack` leads to without a byte to found_.
  void expand(StackId stack);
  void enter(std::int32_t rule, StackId below);
  void enter_repeat(const Frame& from);
  void leave(StackId below);
  void push(const Frame& frame);
  void visit(StackId stack);
  /// The stack that goes on at an item; the end of a sequence needs no frame.
  StackId stack_behind(std::int32_t item, StackId below);
  void begin_set();
  void expand_waiting();
  StateId intern_found();

  std::shared_ptr<const Grammar> grammar_;  // shared with other automata of the grammar
  const std::uint8_t* byte_class_;
  std::size_t num_classes_;

  std::vector<Frame> frames_;
  NumberTable frame_numbers_;
  std::vector<StackId> state_stacks_;      // of all states, one after another
  std::vector<std::size_t> state_ends_;    // in state_stacks_
  std::vector<std::uint8_t> has_unknown_;  // by state
  std::vector<StateId> steps_;             // (states, classes); -1: not taken yet
  NumberTable state_numbers_;
  std::int64_t work_ = 0;
  std::int64_t expanded_ = 0;  // for the present set
  bool was_cut_ = false;

  // What expand() works on. A stack is visited, or entered by a repetition, in this set when its
  // mark is the set's.
  std::uint32_t set_ = 0;
  std::vector<std::uint32_t> visited_, repeated_;
  std::vector<StackId> waiting_, found_;
};

}  // namespace atl::serve::grammar
