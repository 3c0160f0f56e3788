#pragma once

#include <cstddef>

#include "atoll/device/device.h"

namespace atl {

/// A device whose driver says how much of its memory nobody has taken.
class FreeMemory {
 public:
  virtual ~FreeMemory() = default;
  /// Bytes; what other processes have taken is not among them.
  virtual std::size_t free_memory() = 0;
};

/// Of a device that does not say, its whole memory.
inline std::size_t free_memory_of(Device& device) {
  auto* const known = dynamic_cast<FreeMemory*>(&device);
  return known == nullptr ? device.total_memory() : known->free_memory();
}

}  // namespace atl
