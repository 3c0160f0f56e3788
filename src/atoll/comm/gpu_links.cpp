#include "atoll/comm/gpu_links.h"

#include "atoll/base/check.h"
#include "atoll/comm/world_state.h"

namespace atl::comm {

void GpuLinks::all_reduce(std::span<const int> /*members*/, const Tensor& /*data*/) {
  ATOLL_CHECK(false, "links without sums of their own");
}

void GpuLinks::reduce_scatter(std::span<const int> /*members*/, int /*self*/,
                              const Tensor& /*data*/, std::span<const std::int64_t> /*parts*/,
                              const Tensor& /*result*/) {
  ATOLL_CHECK(false, "links without sums of their own");
}

GpuLinksUse::GpuLinksUse(World& world, MakeGpuLinks make) : world_(world) {
  world_.all().channel().world().make_gpu_links = std::move(make);
}

GpuLinksUse::~GpuLinksUse() {
  World::State& state = world_.all().channel().world();
  state.make_gpu_links = nullptr;
  for (const auto& channel : state.channels) channel->drop_gpu_links();
}

}  // namespace atl::comm
