#pragma once

#include "atoll/comm/collective.h"
#include "atoll/comm/transport.h"

namespace atl::comm {

/// Carries a collective of two or more ranks out by messages alone, for backends that have no way
/// of their own. Steps and bytes (m = bytes of data, n = ranks), each rank to each other directly:
///
///   every call but exchange   a header to each other, compared before anything moves
///   reduce_scatter  each part to its owner, who sums in rank order: (n - 1) / n m, in messages of
///                   transport.piece_bytes(), the next under way while the last is summed; scratch
///                   is 2 (n - 1) messages, at most 16 MiB, whatever m is
///   all_gather      each part to all others: (n - 1) / n m
///   all_reduce      both, of even parts: 2 (n - 1) / n m; up to 64 KiB in all, everything to
///                   everyone
///   broadcast       a binomial tree: m, log2(n) steps; more than 64 KiB to three or more ranks:
///                   even parts from the root, then all_gather
///   all_to_all, exchange  directly
///
/// Throws PeerError when a rank calls something else, and what the transport throws.
void run_pieces(Transport& transport, const Collective& collective);

}  // namespace atl::comm
