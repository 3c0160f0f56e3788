#include "atoll/comm/gpu_links.h"

#include "atoll/comm/world_state.h"

namespace atl::comm {

GpuLinksUse::GpuLinksUse(World& world, MakeGpuLinks make) : world_(world) {
  world_.all().channel().world().make_gpu_links = std::move(make);
}

GpuLinksUse::~GpuLinksUse() {
  World::State& state = world_.all().channel().world();
  state.make_gpu_links = nullptr;
  for (const auto& channel : state.channels) channel->drop_gpu_links();
}

}  // namespace atl::comm
