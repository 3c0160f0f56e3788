#pragma once

// The one hash map that BPE spends its time in: (left id, right id) -> value.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace atl::text {

/// Two neighbouring token ids.
struct IdPair {
  std::int32_t left = 0;
  std::int32_t right = 0;
  friend bool operator==(const IdPair&, const IdPair&) = default;
  friend auto operator<=>(const IdPair&, const IdPair&) = default;
};

/// Open addressing with linear probing on a power of two; nothing is ever erased. Value must be
/// cheap to copy. References stay valid until the next insertion.
template <typename Value>
class PairMap {
 public:
  explicit PairMap(std::size_t expected = 0) {
    while (slots_.size() < 2 * expected) grow_to(2 * slots_.size());
  }

  std::size_t size() const { return size_; }

  /// The value of `pair`, or nullptr.
  const Value* find(IdPair pair) const {
    const std::uint64_t key = pack(pair);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

  /// The value of `pair`, made by default when it is not there. Ids must not be negative.
  Value& operator[](IdPair pair) {
    if (2 * (size_ + 1) > slots_.size()) grow_to(2 * slots_.size());
    const std::uint64_t key = pack(pair);
    std::size_t i = slot_of(key);
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
    if (slots_[i].key == kEmpty) {
      slots_[i].key = key;
      ++size_;
    }
    return slots_[i].value;
  }

  /// Calls fn(pair, value) for each entry, in no useful order.
  template <typename Fn>
  void for_each(Fn&& fn) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) fn(unpack(slot.key), slot.value);
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // a pair of negative ids
  struct Slot {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  static std::uint64_t pack(IdPair pair) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.left)) << 32) |
           static_cast<std::uint32_t>(pair.right);
  }
  static IdPair unpack(std::uint64_t key) {
    return {static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key)};
  }
  // Fibonacci hashing; the high bits are the well-mixed ones.
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(((key ^ (key >> 29)) * 0x9E3779B97F4A7C15U) >> shift_);
  }
  void grow_to(std::size_t num_slots) {
    std::vector<Slot> old(num_slots);
    old.swap(slots_);
    mask_ = num_slots - 1;
    for (shift_ = 64; num_slots > 1; num_slots /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      std::size_t i = slot_of(slot.key);
      while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t mask_ = 15;
  std::size_t size_ = 0;
  int shift_ = 60;
};

}  // namespace atl::text
