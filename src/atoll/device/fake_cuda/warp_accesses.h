#pragma once

// How well the lanes of a warp share what memory gives at once: sectors of 32 bytes of the device's
// memory, and the 32 banks of shared memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/device/fake_cuda/where.h"

namespace atl::fake_cuda {

/// What the accesses of warps came to.
struct AccessTotals {
  std::uint64_t sectors = 0;         ///< 32-byte pieces of the device's memory that were moved
  std::uint64_t asked_bytes = 0;     ///< different bytes of these that the lanes asked for
  std::uint64_t bank_conflicts = 0;  ///< times that lanes waited for a bank of shared memory

  /// The part of what was moved that was asked for; 1 where nothing was moved.
  double coalescing() const {
    if (sectors == 0) return 1;
    return static_cast<double>(asked_bytes) / static_cast<double>(32 * sectors);
  }
  AccessTotals& operator+=(const AccessTotals& other) {
    sectors += other.sectors;
    asked_bytes += other.asked_bytes;
    bank_conflicts += other.bank_conflicts;
    return *this;
  }
};

/// The accesses of one warp. The lanes of a GPU make an access together. Here each lane comes by
/// itself, so accesses are matched up by their line in the source and by how often the lane has
/// been there since the warp met last.
class WarpAccesses {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite, kSharedRead, kSharedWrite };

  /// An access of a lane to `bytes` bytes, 16 at most. Shared memory counts from 0.
  void note(Kind kind, int lane, std::uintptr_t at, std::size_t bytes, Where where);
  /// Adds what the accesses noted so far come to, and forgets them: the warp meets, or ends.
  void count(AccessTotals& totals);
  void clear() { accesses_.clear(); }

 private:
  struct Access {
    Kind kind;
    std::uint8_t lane;
    std::uint8_t bytes;
    std::uint32_t visit;  // of the lane, to this line
    Where where;
    std::uintptr_t at;
  };
  std::vector<Access> accesses_;
};

}  // namespace atl::fake_cuda
