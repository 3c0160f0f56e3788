#pragma once

#include "atoll/comm/gpu_links.h"

namespace atl::comm {

/// Whether this binary was built with NCCL.
bool has_nccl();

/// Links by NCCL between `device`, a GPU that CUDA gave, and those of the other ranks, one each. A
/// communicator is made at a group's first call; its id goes through the host.
/// Throws Error(kUser) in a binary without NCCL.
MakeGpuLinks nccl_links(Device& device, double timeout_s);

}  // namespace atl::comm
