#pragma once

// Natural text repeats its words, so most words need no merging at all.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace atl::text {

/// A bounded map from short words to their ids: direct-mapped, one cache line an entry, the newest
/// word wins. A chained map of everything was rejected: it grows with the text and its misses cost
/// more than merging again.
class WordCache {
 public:
  static constexpr std::size_t kMaxWordBytes = 31;
  static constexpr std::size_t kMaxIds = 7;

  /// 2^log2_slots entries of 64 bytes; log2_slots >= 1.
  explicit WordCache(int log2_slots)
      : slots_(std::size_t{1} << log2_slots), shift_(64 - log2_slots) {}

  /// Where a word has its place, and what it is compared by.
  struct Place {
    char key[kMaxWordBytes + 1];  // the word, zeros, the word's size
    std::size_t slot;
  };

  /// True when words of this size are kept at all.
  static bool keeps(std::string_view word) { return word.size() <= kMaxWordBytes; }

  /// The place of a word that keeps() accepts.
  Place place(std::string_view word) const {
    Place place;
    std::memset(place.key, 0, sizeof(place.key));
    std::memcpy(place.key, word.data(), word.size());
    place.key[kMaxWordBytes] = static_cast<char>(word.size());
    std::uint64_t parts[4];
    std::memcpy(parts, place.key, sizeof(parts));
    std::uint64_t hash = parts[0] * 0x9E3779B97F4A7C15U;
    hash = (hash ^ (hash >> 32) ^ parts[1]) * 0xC2B2AE3D27D4EB4FU;
    hash = (hash ^ (hash >> 32) ^ parts[2]) * 0x165667B19E3779F9U;
    hash = (hash ^ (hash >> 32) ^ parts[3]) * 0x9E3779B97F4A7C15U;
    place.slot = static_cast<std::size_t>(hash >> shift_);
    return place;
  }

  /// The ids of the word, empty when it is not here. (No word has no ids.)
  std::span<const std::int32_t> find(const Place& place) const {
    const Slot& slot = slots_[place.slot];
    std::uint64_t a[4], b[4];
    std::memcpy(a, place.key, sizeof(a));
    std::memcpy(b, slot.key, sizeof(b));
    const std::uint64_t differs = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);
    if (differs != 0) return {};
    return {slot.ids, slot.num_ids};
  }

  /// Keeps the word unless it has too many ids.
  void put(const Place& place, std::span<const std::int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Slot& slot = slots_[place.slot];
    std::memcpy(slot.key, place.key, sizeof(slot.key));
    std::copy(ids.begin(), ids.end(), slot.ids);
    slot.num_ids = static_cast<std::uint32_t>(ids.size());
  }

 private:
  struct alignas(64) Slot {
    char key[kMaxWordBytes + 1] = {};
    std::int32_t ids[kMaxIds] = {};
    std::uint32_t num_ids = 0;
  };

  std::vector<Slot> slots_;
  int shift_;

  static_assert(sizeof(Slot) == 64);
};

}  // namespace atl::text
