#include "atoll/serve/grammar/mask_table.h"

#include <algorithm>
#include <bit>

namespace atl::serve::grammar {

namespace {

// What the walks for one state may cost before they give up: about 50 ms. Grammars that are not
// very ambiguous need a hundredth of it.
constexpr std::int64_t kMaxCost = 1 << 24;

void set_bit(std::vector<std::uint64_t>& bits, std::int32_t token) {
  bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
}

}  // namespace

MaskTable::MaskTable(std::shared_ptr<const Grammar> grammar,
                     std::shared_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), automaton_(std::move(grammar)) {
  bits_.resize((static_cast<std::size_t>(vocabulary_->size()) + 63) / 64);
  path_.resize(1 + std::max(vocabulary_->short_tokens().max_depth(),
                            vocabulary_->long_tokens().max_depth()));
}

const TokenSet& MaskTable::tokens_after(StateId state) {
  const auto found = state_masks_.find(state);
  if (found != state_masks_.end()) return found->second;
  TokenSet tokens = find_tokens(state);
  mask_bytes_ += tokens.bytes() + sizeof(TokenSet);
  return state_masks_.emplace(state, std::move(tokens)).first->second;
}

StateId MaskTable::accept(StateId state, std::int32_t token) {
  const std::string_view bytes = vocabulary_->bytes(token);
  if (bytes.empty()) return kDeadState;
  for (const char byte : bytes) state = automaton_.step(state, static_cast<std::uint8_t>(byte));
  return state;
}

TokenSet MaskTable::find_tokens(StateId state) {
  const std::int64_t limit = cost() + kMaxCost;
  const auto all = automaton_.stacks(state);
  const std::vector<StackId> stacks(all.begin(), all.end());  // a walk adds states
  // First what fills bits_ for itself.
  for (const StackId stack : stacks) {
    if (stack > kUnknownStack) top_mask(cut(stack).top, limit);
  }
  clear_bits();
  bool is_whole = true;
  for (const StackId stack : stacks) {
    if (stack > kUnknownStack) is_whole = add_stack(stack, limit) && is_whole;
  }
  const TokenTrie& long_tokens = vocabulary_->long_tokens();
  const auto num_long = static_cast<std::int32_t>(long_tokens.nodes().size() - 1);
  is_whole = walk(long_tokens, 0, num_long, state, limit, nullptr) && is_whole;
  // Fewer tokens than there might be are right; none would leave the text without an end.
  if (!is_whole) add_single_bytes(state);
  return compact_bits();
}

bool MaskTable::add_stack(StackId stack, std::int64_t limit) {
  const CutStack parts = cut(stack);
  const TopMask& top = top_mask(parts.top, limit);
  for (std::size_t i = 0; i < top.tokens.bits.size(); ++i) bits_[i] |= top.tokens.bits[i];
  for (const std::int32_t token : top.tokens.tokens) set_bit(bits_, token);
  if (top.leaving.empty() || parts.below == kEmptyStack) return top.is_whole;
  const StateId below = automaton_.state_of(parts.below);
  const auto& nodes = vocabulary_->short_tokens().nodes();
  for (const std::int32_t node : top.leaving) {
    const std::int32_t end = nodes[static_cast<std::size_t>(node)].next;
    if (!walk(vocabulary_->short_tokens(), node + 1, end, below, limit, nullptr)) return false;
  }
  return top.is_whole;
}

const MaskTable::TopMask& MaskTable::top_mask(StackId top, std::int64_t limit) {
  const auto found = top_masks_.find(top);
  if (found != top_masks_.end() && (found->second.is_whole || cost() > limit)) return found->second;
  clear_bits();
  TopMask mask;
  const TokenTrie& trie = vocabulary_->short_tokens();
  const auto num_nodes = static_cast<std::int32_t>(trie.nodes().size() - 1);
  mask.is_whole = walk(trie, 0, num_nodes, automaton_.state_of(top), limit, &mask.leaving);
  mask.tokens = compact_bits();
  mask_bytes_ += mask.tokens.bytes() + 4 * mask.leaving.size() + sizeof(TopMask);
  return top_masks_.insert_or_assign(top, std::move(mask)).first->second;
}

// The topmost frame and the repetitions right below it: what is inside a string of JSON, or in a
// word of a regular expression, stays there.
MaskTable::CutStack MaskTable::cut(StackId stack) {
  constexpr std::size_t kMaxRepetitions = 4;
  std::vector<Frame> top = {automaton_.frame(stack)};
  StackId below = top.front().below;
  while (below > kUnknownStack && top.size() <= kMaxRepetitions) {
    const Frame& frame = automaton_.frame(below);
    const Item& item = automaton_.grammar().items[static_cast<std::size_t>(frame.item)];
    if (item.kind != ItemKind::kRepeat) break;
    top.push_back(frame);
    top.back().count = usual_count(frame);
    below = frame.below;
  }
  StackId cut = kUnknownStack;
  for (auto frame = top.rbegin(); frame != top.rend(); ++frame) {
    cut = automaton_.stack_of({frame->item, frame->count, cut});
  }
  return {cut, below};
}

// The least count of a repetition that allows the same tokens. Each time takes a byte at least, so
// a short token does not come to a bound that is further off than it is long.
std::int32_t MaskTable::usual_count(const Frame& frame) const {
  constexpr auto kFar = static_cast<std::int32_t>(Vocabulary::kShortBytes);
  const Item& item = automaton_.grammar().items[static_cast<std::size_t>(frame.item)];
  if (item.max != kUnbounded && item.max - frame.count <= kFar) return frame.count;
  if (frame.count >= item.min) return item.min;
  return item.min - frame.count > kFar ? 0 : frame.count;
}

bool MaskTable::walk(const TokenTrie& trie, std::int32_t begin, std::int32_t end, StateId state,
                     std::int64_t limit, std::vector<std::int32_t>* leaving) {
  if (begin == end) return true;
  const TokenTrie::Node* nodes = trie.nodes().data();
  path_[nodes[begin].depth - 1U] = state;
  for (std::int32_t at = begin; at < end;) {
    const TokenTrie::Node& node = nodes[at];
    ++nodes_walked_;
    const StateId next = automaton_.step(path_[node.depth - 1U], node.byte);
    if (next == kDeadState) {
      at = node.next;
      continue;
    }
    if (cost() > limit) return false;
    path_[node.depth] = next;
    const std::int32_t last = nodes[at + 1].first_token;
    for (std::int32_t i = node.first_token; i < last; ++i) {
      set_bit(bits_, trie.tokens()[static_cast<std::size_t>(i)]);
    }
    if (leaving != nullptr && automaton_.has_unknown(next)) leaving->push_back(at);
    ++at;
  }
  return true;
}

void MaskTable::add_single_bytes(StateId state) {
  const TokenTrie& trie = vocabulary_->short_tokens();
  const auto num_nodes = trie.nodes().size() - 1;
  for (std::size_t at = 0; at < num_nodes;) {
    const TokenTrie::Node& node = trie.nodes()[at];
    const std::int32_t last = trie.nodes()[at + 1].first_token;
    if (automaton_.step(state, node.byte) != kDeadState) {
      for (std::int32_t i = node.first_token; i < last; ++i) {
        set_bit(bits_, trie.tokens()[static_cast<std::size_t>(i)]);
      }
    }
    at = static_cast<std::size_t>(node.next);
  }
}

void MaskTable::clear_bits() {
  std::fill(bits_.begin(), bits_.end(), 0);
}

TokenSet MaskTable::compact_bits() const {
  std::size_t count = 0;
  for (const std::uint64_t word : bits_) count += static_cast<std::size_t>(std::popcount(word));
  TokenSet result;
  if (2 * bits_.size() < count) {
    result.bits = bits_;
    return result;
  }
  result.tokens.reserve(count);
  for (std::size_t i = 0; i < bits_.size(); ++i) {
    for (std::uint64_t word = bits_[i]; word != 0; word &= word - 1) {
      result.tokens.push_back(static_cast<std::int32_t>(64 * i) + std::countr_zero(word));
    }
  }
  return result;
}

}  // namespace atl::serve::grammar
