#include "atoll/serve/grammar/automaton.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace atl::serve::grammar {

namespace {

// A grammar that is very ambiguous has ever more stacks. Those beyond so many are dropped: fewer
// texts are then allowed, and each of the other stacks still leads to an end.
constexpr std::size_t kMaxStacks = 1024;
// Stacks that are looked at on the way to those of one state. Rules that derive no text in many
// ways have exponentially many.
constexpr std::int64_t kMaxExpanded = 1 << 16;

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      byte_class_(grammar_->byte_class.data()),
      num_classes_(static_cast<std::size_t>(grammar_->num_classes)) {
  frames_.resize(2);  // kEmptyStack and kUnknownStack have no frame
  visited_.resize(2);
  repeated_.resize(2);
  begin_set();
  intern_found();  // kDeadState
}

StateId Automaton::start() {
  begin_set();
  enter(grammar_->root, kEmptyStack);
  expand_waiting();
  return intern_found();
}

StateId Automaton::state_of(StackId stack) {
  begin_set();
  visit(stack);
  expand_waiting();
  return intern_found();
}

StateId Automaton::take_step(StateId state, std::uint8_t byte_class) {
  const std::uint8_t byte = grammar_->class_byte[byte_class];
  begin_set();
  for (const StackId stack : stacks(state)) {
    if (stack <= kUnknownStack) continue;
    const Frame from = frame(stack);
    const auto set = static_cast<std::size_t>(item(from.item).target);
    if (!grammar_->byte_sets[set].test(byte)) continue;
    push({.item = from.item + 1, .below = from.below});
    expand_waiting();
  }
  const StateId result = intern_found();
  steps_[static_cast<std::size_t>(state) * num_classes_ + byte_class] = result;
  return result;
}

void Automaton::expand_waiting() {
  while (!waiting_.empty()) {
    if (++expanded_ > kMaxExpanded) {
      was_cut_ = true;
      return waiting_.clear();
    }
    const StackId stack = waiting_.back();
    waiting_.pop_back();
    expand(stack);
  }
}

void Automaton::expand(StackId stack) {
  ++work_;
  if (stack <= kUnknownStack) {
    found_.push_back(stack);
    return;
  }
  const Frame from = frame(stack);
  const Item& at = item(from.item);
  switch (at.kind) {
    case ItemKind::kBytes:
      if (found_.size() < kMaxStacks) found_.push_back(stack);
      break;
    case ItemKind::kRule:
      enter(at.target, stack_behind(from.item + 1, from.below));
      break;
    case ItemKind::kRepeat:
      enter_repeat(from);
      break;
    case ItemKind::kEnd:
      leave(from.below);
      break;
  }
}

void Automaton::enter(std::int32_t rule, StackId below) {
  for (const std::int32_t begin : grammar_->rules[static_cast<std::size_t>(rule)]) {
    push({.item = begin, .below = below});
  }
}

void Automaton::enter_repeat(const Frame& from) {
  const Item& at = item(from.item);
  if (at.max == 0 || from.count >= at.min) push({.item = from.item + 1, .below = from.below});
  if (at.max == 0) return;
  if (from.count + 1 == at.max) {
    enter(at.target, stack_behind(from.item + 1, from.below));
    return;
  }
  // Without a limit only the first `min` times need to be told apart.
  const std::int32_t count =
      at.max == kUnbounded ? std::min(from.count + 1, at.min) : from.count + 1;
  const StackId again = stack_of({from.item, count, from.below});
  repeated_[static_cast<std::size_t>(again)] = set_;
  enter(at.target, again);
}

// Of a repetition that was entered without a byte since: what has been found from its earlier
// counts allows as much and more. Following it would count up to the limit by empty texts.
void Automaton::leave(StackId below) {
  if (below > kUnknownStack && repeated_[static_cast<std::size_t>(below)] == set_) {
    const Item& at = item(frame(below).item);
    if (at.kind == ItemKind::kRepeat && grammar_->nullable[static_cast<std::size_t>(at.target)]) {
      return;
    }
  }
  visit(below);
}

void Automaton::push(const Frame& frame) {
  if (item(frame.item).kind == ItemKind::kEnd) {
    leave(frame.below);
  } else {
    visit(stack_of(frame));
  }
}

void Automaton::visit(StackId stack) {
  std::uint32_t& mark = visited_[static_cast<std::size_t>(stack)];
  if (mark == set_) return;
  mark = set_;
  waiting_.push_back(stack);
}

StackId Automaton::stack_behind(std::int32_t index, StackId below) {
  while (item(index).kind == ItemKind::kRepeat && item(index).max == 0) ++index;
  if (item(index).kind == ItemKind::kEnd) return below;
  return stack_of({.item = index, .below = below});
}

StackId Automaton::stack_of(const Frame& frame) {
  const std::uint64_t place = static_cast<std::uint64_t>(static_cast<std::uint32_t>(frame.item))
                                  << 32 |
                              static_cast<std::uint32_t>(frame.count);
  const std::uint64_t hash = mix_hash(mix_hash(0, place), static_cast<std::uint64_t>(frame.below));
  const auto next = static_cast<StackId>(frames_.size());
  const StackId stack = frame_numbers_.find_or_insert(
      hash, next, [&](std::int32_t number) { return this->frame(number) == frame; });
  if (stack == next) {
    frames_.push_back(frame);
    visited_.push_back(0);
    repeated_.push_back(0);
  }
  return stack;
}

void Automaton::begin_set() {
  expanded_ = 0;
  ++set_;
  found_.clear();
}

StateId Automaton::intern_found() {
  std::sort(found_.begin(), found_.end());
  std::uint64_t hash = found_.size();
  for (const StackId stack : found_) hash = mix_hash(hash, static_cast<std::uint64_t>(stack));
  const auto next = static_cast<StateId>(state_ends_.size());
  const StateId state = state_numbers_.find_or_insert(
      hash, next, [&](std::int32_t number) { return std::ranges::equal(stacks(number), found_); });
  if (state == next) {
    state_stacks_.insert(state_stacks_.end(), found_.begin(), found_.end());
    state_ends_.push_back(state_stacks_.size());
    steps_.resize(steps_.size() + num_classes_, next == kDeadState ? kDeadState : -1);
    has_unknown_.push_back(std::ranges::binary_search(found_, kUnknownStack));
    work_ += static_cast<std::int64_t>(1 + found_.size() + num_classes_ / 8);
  }
  return state;
}

std::span<const StackId> Automaton::stacks(StateId state) const {
  const auto number = static_cast<std::size_t>(state);
  const std::size_t begin = number == 0 ? 0 : state_ends_[number - 1];
  return std::span(state_stacks_).subspan(begin, state_ends_[number] - begin);
}

std::size_t Automaton::bytes() const {
  return frames_.size() * (sizeof(Frame) + 2 * sizeof(std::uint32_t)) + frame_numbers_.bytes() +
         state_stacks_.size() * sizeof(StackId) + steps_.size() * sizeof(StateId) +
         state_ends_.size() * (sizeof(std::size_t) + 1) + state_numbers_.bytes();
}

PortableState Automaton::export_state(StateId state) const {
  PortableState result;
  std::unordered_map<StackId, StackId> numbers = {{kEmptyStack, kEmptyStack},
                                                  {kUnknownStack, kUnknownStack}};
  for (const StackId stack : stacks(state)) {
    std::vector<StackId> path;  // that have no number yet, the topmost first
    for (StackId at = stack; !numbers.contains(at); at = frame(at).below) path.push_back(at);
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      Frame copy = frame(*at);
      copy.below = numbers.at(copy.below);
      result.frames.push_back(copy);
      numbers[*at] = static_cast<StackId>(result.frames.size() + 1);
    }
    result.stacks.push_back(numbers.at(stack));
  }
  return result;
}

StateId Automaton::import_state(const PortableState& state) {
  std::vector<StackId> stacks = {kEmptyStack, kUnknownStack};
  for (Frame frame : state.frames) {
    frame.below = stacks[static_cast<std::size_t>(frame.below)];
    stacks.push_back(stack_of(frame));
  }
  begin_set();
  for (const StackId stack : state.stacks) {
    found_.push_back(stacks[static_cast<std::size_t>(stack)]);
  }
  return intern_found();
}

}  // namespace atl::serve::grammar
