#pragma once

#include <filesystem>

#include "atoll/comm/world.h"

namespace atl::comm {

/// Writes the last collectives of this rank to flight-rank<r>.txt in `directory`, which is made if
/// need be. Returns `error`, which has ended the rank, with the file's place in its message, or
/// with the reason why there is none.
PeerError with_flight_record(const PeerError& error, const World& world,
                             const std::filesystem::path& directory);

}  // namespace atl::comm
