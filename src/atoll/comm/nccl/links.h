#pragma once

#include <string>

#include "atoll/comm/collectives/gpu_links.h"

namespace atl::comm {

/// Whether this binary was built with NCCL.
bool has_nccl();

/// Its version, as "2.27.3"; empty without it.
std::string nccl_version();

/// Who adds up what ranks have.
enum class GpuSums {
  kOrdered,  ///< atoll, in rank order: the bits of every other backend
  kNccl,     ///< NCCL, in an order that hangs on topology and version
};

/// Links by NCCL between `device`, a GPU that CUDA gave, and those of the other ranks, one each. A
/// communicator is made at a group's first call; its id goes through the host.
/// Throws Error(kUser) in a binary without NCCL.
MakeGpuLinks nccl_links(Device& device, double timeout_s, GpuSums sums = GpuSums::kOrdered);

}  // namespace atl::comm
