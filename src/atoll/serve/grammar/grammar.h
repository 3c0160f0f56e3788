#pragma once

// A context-free grammar over bytes, in the form that a matcher walks.

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

namespace atl::serve::grammar {

/// A set of bytes.
using ByteSet = std::bitset<256>;

/// What an item of a sequence is.
enum class ItemKind : std::uint8_t {
  kBytes,   ///< one byte of a set
  kRule,    ///< a rule, once
  kRepeat,  ///< a rule, `min` to `max` times
  kEnd,     ///< the end of the sequence
};

/// An item of a sequence. Sequences lie one after another in Grammar::items.
struct Item {
  ItemKind kind = ItemKind::kEnd;
  std::int32_t target = 0;  ///< the number of a byte set or of a rule
  std::int32_t min = 0;     ///< kRepeat: times at least
  std::int32_t max = 0;     ///< kRepeat: times at most; kUnbounded: no limit
};

/// Item::max of a repetition without a limit.
inline constexpr std::int32_t kUnbounded = -1;

/// A checked grammar: no rule is left-recursive, every rule that can be reached derives some text,
/// and a repeated rule that derives the empty text has min = 0. Immutable, so threads may share it.
struct Grammar {
  std::vector<Item> items;
  std::vector<ByteSet> byte_sets;
  std::vector<std::vector<std::int32_t>> rules;  ///< where each alternative begins in `items`
  std::vector<bool> nullable;                    ///< for each rule: derives the empty text
  std::int32_t root = 0;                         ///< a rule
  /// Bytes that no byte set tells apart have the same class.
  std::array<std::uint8_t, 256> byte_class{};
  std::int32_t num_classes = 0;
  std::vector<std::uint8_t> class_byte;  ///< a byte of each class
};

}  // namespace atl::serve::grammar
