#pragma once

#include <cstdint>
#include <vector>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// Throws Error(kInternal) naming the call when what one rank asks for makes no sense by itself:
/// parts that do not ascend, a result of the wrong size, a dtype that has no sums.
void check_call(const Collective& collective);

/// Bytes of tensors.
struct Bytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};
/// What this rank has to send and receive for a call, each byte to each receiver once; all_reduce
/// counts as reduce_scatter and all_gather of even parts, 2 (n - 1) / n of its bytes each way.
Bytes bytes_of_call(const Collective& collective);

/// Where the part of `member` begins when n elements are shared evenly by `size` ranks, cut at
/// multiples of `multiple`; n for `member` = size.
std::int64_t even_begin(std::int64_t n, int size, std::int64_t multiple, int member);

/// See Group::even_parts.
std::vector<std::int64_t> even_parts(std::int64_t n, int size, std::int64_t multiple);

/// Whether the rank at `member` of the group contributes to this reduction.
bool contributes(const Collective& collective, int member);

}  // namespace atl::comm
