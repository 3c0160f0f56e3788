#pragma once

// protocol.h as bytes, by messages.proto. What comes in is a stranger's until it has been through
// here: sizes, ranges and texts are checked, so that the state machines need not.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Limits of what a message may hold.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{2} << 20;
inline constexpr int kMaxRanges = 10'000;          ///< in one list
inline constexpr int kMaxIslands = 4096;           ///< in one list
inline constexpr int kMaxFragments = 4096;         ///< of a model
inline constexpr std::size_t kMaxName = 128;       ///< bytes, of an island's name
inline constexpr std::size_t kMaxText = 256;       ///< bytes, of a part of an identity and the like
inline constexpr std::size_t kMaxAddress = 16384;  ///< bytes, of the addresses of an island's ranks
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 50;  ///< those of all can be added
inline constexpr std::size_t kSecretSize = 32;      ///< hexadecimal digits, of an access token
inline constexpr std::size_t kMaxSettings = 65536;  ///< bytes, of RunIdentity::settings
inline constexpr std::size_t kMaxReason = 4096;     ///< bytes, of a `why`; longer ones are cut

/// A message as bytes. Throws Error(kUser) naming the field when the other side would refuse it.
std::string encode(const MessageFromIsland& message);
std::string encode(const MessageToIsland& message);

/// The message that `bytes` are. Throws Error(kDamaged) naming the field when one is missing,
/// unknown, or out of its limits. Norm and loss of a Ready may be no finite numbers where it says
/// so; every other number is finite, and none is negative but `outer_step` of a Join that has no
/// state and a loss.
MessageFromIsland decode_from_island(std::string_view bytes);
MessageToIsland decode_to_island(std::string_view bytes);

/// Throws Error(kUser) unless `name` can be an island's: 1 to 128 of A-Z a-z 0-9 . _ - and neither
/// "." nor "..", since it names directories too.
void check_island_name(std::string_view name);

/// "commit", "reduce failed": for log lines.
std::string_view name_of(const FromIsland& body);
std::string_view name_of(const ToIsland& body);

}  // namespace atl::island
