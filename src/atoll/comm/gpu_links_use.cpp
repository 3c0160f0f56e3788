#include "atoll/comm/gpu_links_use.h"

#include <utility>

#include "atoll/comm/world_state.h"

namespace atl::comm {

GpuLinksUse::GpuLinksUse(World& world, MakeGpuLinks make) : world_(world) {
  world_.state().make_gpu_links = std::move(make);
}

GpuLinksUse::~GpuLinksUse() {
  WorldState& state = world_.state();
  state.make_gpu_links = nullptr;
  for (const auto& channel : state.channels) channel->drop_gpu_links();
}

}  // namespace atl::comm
