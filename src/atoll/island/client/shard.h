#pragma once

// Which part of each fragment a rank of an island exchanges with the other islands.

#include <string>
#include <vector>

#include "atoll/island/outer/state_part.h"
#include "atoll/parallel/layout/element_range.h"

namespace atl::island {

/// A rank among those of its island that share the outer state.
struct ShardPlace {
  int rank = 0;
  int num_ranks = 1;
};

/// The elements of a fragment of so many that a rank has: about as many as each other rank, cut
/// between pieces (piece_size()) and between blocks of the state, so that neither what is encoded
/// together nor what is hashed together depends on the number of ranks. Small fragments have fewer
/// pieces than an island has ranks: some then have nothing. `vectors`: of the outer state.
parallel::ElementRange shard_range(std::int64_t elements, int vectors, const ShardPlace& place);

/// The addresses of an island's ranks, in their order, as one text: A,B,C.
std::string join_addresses(const std::vector<std::string>& addresses);
std::vector<std::string> split_addresses(const std::string& text);

/// Where a rank listens, or is reached: `setting` is one HOST:PORT, of the first rank, whose
/// followers have the ports behind it (0 stays 0), or has one for each rank. Throws Error(kUser)
/// naming the setting when it has another number of them.
std::string address_of_rank(const std::string& setting, const char* name, const ShardPlace& place);

}  // namespace atl::island
