#pragma once

#include "atoll/comm/collective.h"

namespace atl::comm {

/// Carries out a collective of a group of one rank, without a transport.
void run_alone(const Collective& collective);

/// Of an exchange: copies what this rank sends itself to what it receives from itself, first to
/// first. Throws Error(kInternal) when they do not match.
void copy_own_pieces(const Collective& collective);

}  // namespace atl::comm
