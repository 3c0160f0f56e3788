#pragma once

// Which tokens may come next in each state of an automaton.

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "atoll/serve/grammar/automaton.h"
#include "atoll/serve/grammar/token_trie.h"

namespace atl::serve::grammar {

/// A set of tokens: as bits, or as a list where that takes less memory.
struct TokenSet {
  std::vector<std::uint64_t> bits;   ///< bit i % 64 of word i / 64 is token i's; or empty
  std::vector<std::int32_t> tokens;  ///< where `bits` is empty
  bool empty() const { return bits.empty() && tokens.empty(); }
  std::size_t bytes() const { return 8 * bits.size() + 4 * tokens.size(); }
};

/// Finds the tokens that may follow a state by walking the tree of tokens with the automaton, and
/// keeps what it has found. Most of a walk does not depend on the bottom of a stack: inside a JSON
/// string, only tokens with a quotation mark do. So the top of a stack is walked alone, once, and
/// only where a token goes below that top the walk goes on with the whole stack. Not thread-safe.
class MaskTable {
 public:
  MaskTable(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  Automaton& automaton() { return automaton_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  /// The tokens that may come next; valid until the next call.
  const TokenSet& tokens_after(StateId state);
  /// The state after one more token.
  StateId accept(StateId state, std::int32_t token);
  /// Bytes that all of it takes, nearly.
  std::size_t bytes() const { return automaton_.bytes() + mask_bytes_; }

 private:
  static constexpr std::int64_t kFrameCost = 16;  // of a walk, in nodes of the tree

  // Of the top of a stack, whatever lies below.
  struct TopMask {
    TokenSet tokens;
    std::vector<std::int32_t> leaving;  // nodes of the short tokens behind which the top is done
    bool is_whole = true;               // false: the walk would have taken too long
  };
  // A stack cut in two: its top above kUnknownStack, and what lies below.
  struct CutStack {
    StackId top = kEmptyStack;
    StackId below = kEmptyStack;
  };

  CutStack cut(StackId stack);
  std::int32_t usual_count(const Frame& frame) const;
  const TopMask& top_mask(StackId top, std::int64_t limit);
  TokenSet find_tokens(StateId state);
  /// Adds the short tokens that one stack allows to bits_. False: it would have taken too long.
  bool add_stack(StackId stack, std::int64_t limit);
  /// Sets the bits of the tokens of nodes [begin, end) that may follow `state` in bits_.
  bool walk(const TokenTrie& trie, std::int32_t begin, std::int32_t end, StateId state,
            std::int64_t limit, std::vector<std::int32_t>* leaving);
  void add_single_bytes(StateId state);
  std::int64_t cost() const { return kFrameCost * automaton_.work() + nodes_walked_; }
  void clear_bits();
  TokenSet compact_bits() const;

  std::shared_ptr<const Vocabulary> vocabulary_;  // shared by all grammars
  Automaton automaton_;
  std::unordered_map<StackId, TopMask> top_masks_;
  std::unordered_map<StateId, TokenSet> state_masks_;
  std::size_t mask_bytes_ = 0;
  std::int64_t nodes_walked_ = 0;
  std::vector<std::uint64_t> bits_;  // of the walk
  std::vector<StateId> path_;        // the state after each byte of the walk's node
};

}  // namespace atl::serve::grammar
