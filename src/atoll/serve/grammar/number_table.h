#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace atl::serve::grammar {

/// Finds the number of a thing that its owner keeps: a hash table of numbers alone. Open
/// addressing with linear probing on a power of two.
class NumberTable {
 public:
  /// The number for which is_same(number) holds, among those inserted with this hash; or `next`,
  /// which is then inserted.
  template <typename IsSame>
  std::int32_t find_or_insert(std::uint64_t hash, std::int32_t next, IsSame&& is_same) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].number >= 0) {
      if (slots_[at].tag == tag && is_same(slots_[at].number)) return slots_[at].number;
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {hash, tag, next};
    ++size_;
    return next;
  }

  /// Of the table, in memory.
  std::size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t tag = 0;
    std::int32_t number = -1;
  };

  void grow() {
    constexpr std::size_t kFirstSize = 64;
    std::vector<Slot> old(slots_.empty() ? kFirstSize : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number < 0) continue;
      std::size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

/// A step of a hash: well mixed in all bits (the finisher of SplitMix64, Steele et al. 2014).
inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace atl::serve::grammar
