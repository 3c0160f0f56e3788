#pragma once

#include <cstddef>

namespace atl::fake_cuda {

/// Zeroed memory that faults when it is touched: the process then says that host code touched a
/// GPU's memory, and ends by the signal. Throws MemoryError.
std::byte* map_protected(std::size_t bytes);
void unmap_protected(std::byte* data, std::size_t bytes) noexcept;

/// Opens or closes memory of map_protected.
void set_protected(std::byte* data, std::size_t bytes, bool is_protected);

}  // namespace atl::fake_cuda
