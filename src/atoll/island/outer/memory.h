#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/island/outer/algorithm.h"

namespace atl::island {

/// Bytes of one kind.
struct OuterMemoryPart {
  std::string what;
  std::size_t bytes = 0;
};

/// What a rank of an island holds at most beside its training, while it exchanges its largest
/// fragment. `elements`: parameters of each fragment that it has. Throws Error(kUser) as
/// make_outer_algorithm() and compress::make_codec() do.
std::vector<OuterMemoryPart> outer_memory(const OuterOptions& options,
                                          std::span<const std::int64_t> elements);

}  // namespace atl::island
