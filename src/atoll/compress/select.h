#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace atl::compress {

/// The indices of the `count` largest of at most 65,536 keys, ascending; of equal keys the first.
/// `indices` has room for count + 1. count <= keys.size().
void select_largest(std::span<const std::int32_t> keys, std::size_t count, std::uint16_t* indices);

}  // namespace atl::compress
