#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// What ranks compare before a collective moves anything: plain bytes of a fixed size, the same
/// whether they lie in shared memory or travel. Not of kExchange, which only some ranks call.
struct CallHeader {
  std::uint32_t magic = 0;
  std::uint32_t line = 0;
  std::uint64_t sequence = 0;
  std::uint64_t group = 0;         ///< hash of its name and members
  std::uint64_t parts = 0;         ///< hash of the parts of reduce_scatter and all_gather
  std::uint64_t contributors = 0;  ///< hash
  std::int64_t dims[Shape::kMaxRank] = {};
  std::int64_t to_peer = 0;    ///< all_to_all: elements that go to whom this header goes
  std::int64_t from_peer = 0;  ///< all_to_all: elements expected from there
  std::int32_t root = 0;
  std::uint8_t op = 0;
  std::uint8_t reduce = 0;
  std::uint8_t dtype = 0;
  std::uint8_t num_dims = 0;
  char group_name[40] = {};  ///< cut where it does not fit, as the file
  char file[72] = {};

  /// As Collective::to_string; safe for bytes that a stranger sent.
  std::string to_string() const;
};
static_assert(std::is_trivially_copyable_v<CallHeader> && sizeof(CallHeader) == 208);

/// The header of a call, but for to_peer and from_peer.
CallHeader make_header(const Collective& collective);

/// Equal for headers in which compare_calls() finds nothing but to_peer and from_peer to differ.
std::uint64_t fingerprint(const CallHeader& header);

/// Throws PeerError(rank) that says what `rank` of the world calls when it is not what this rank
/// calls, so that the same mistake is named on both sides.
void compare_calls(const CallHeader& mine, const CallHeader& theirs, int rank);

}  // namespace atl::comm
