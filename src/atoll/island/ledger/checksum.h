#pragma once

#include <cstdint>

#include "atoll/base/hash.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// What the first record of a run's ledger is chained to.
Hash128 checksum_of(const RunIdentity& identity);

/// The checksum of record `number` (from 1): XXH3-128 of the checksum before it, its number, its
/// time and its content, so that a record that was changed, left out or moved is found by what
/// follows. Independent of the file format and the machine. docs/ledger.md has the layout.
Hash128 checksum_of(Hash128 previous, std::int64_t number, const LogRecord& record);

}  // namespace atl::island
