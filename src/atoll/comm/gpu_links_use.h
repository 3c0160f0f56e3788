#pragma once

#include "atoll/comm/collectives/gpu_links.h"
#include "atoll/comm/world.h"

namespace atl::comm {

/// While one lives, collectives of `world` move a GPU's tensors by links, not through host memory.
/// All ranks have one or none. The device must outlive it, and it must not outlive the world.
class GpuLinksUse {
 public:
  GpuLinksUse(World& world, MakeGpuLinks make);
  ~GpuLinksUse();
  GpuLinksUse(const GpuLinksUse&) = delete;
  GpuLinksUse& operator=(const GpuLinksUse&) = delete;

 private:
  World& world_;
};

}  // namespace atl::comm
