#pragma once

#include <cstddef>

namespace atl {

/// Bytes of memory that this process holds: its code and libraries as far as they were read, heap
/// and stacks; 0 where the system does not say.
std::size_t resident_bytes();

/// The most that it held so far; 0 where the system does not say.
std::size_t peak_resident_bytes();

}  // namespace atl
