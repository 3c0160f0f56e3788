#pragma once

#include <cstdint>
#include <span>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// Whether reductions of this dtype exist: f32, f64, bf16, i32, i64.
bool can_reduce(Dtype dtype);

/// results[..][i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for `count` elements.
/// bf16 runs in f32 and is rounded once; integers wrap; of max and min a NaN wins, the first of
/// several. A result may be one of the sources, or overlap none. One pass over memory, in blocks
/// that stay in the first cache.
void reduce_in_order(Dtype dtype, Reduce reduce, std::span<const void* const> sources,
                     std::span<void* const> results, std::int64_t count);

}  // namespace atl::comm
