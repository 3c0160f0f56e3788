#include "atoll/train/run_device.h"

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/comm/nccl/links.h"
#include "atoll/train/config_device.h"
#include "atoll/train/cpu_share.h"
#include "atoll/train/room.h"

namespace atl::train {

namespace {

int threads_of(const TrainConfig& config, const comm::World& world) {
  if (config.device.threads > 0 || world.size() == 1)
    return static_cast<int>(config.device.threads);
  return std::max(1, available_cpus() / ranks_here(world));
}

std::vector<std::int64_t> gather(comm::World& world, std::int64_t mine) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  all[static_cast<std::size_t>(world.rank())] = mine;
  if (world.size() == 1) return all;
  world.all().all_gather({all.data(), {Dtype::kI64, {world.size()}}},
                         world.all().even_parts(world.size()));
  return all;
}

// How many ranks before this one are on its machine.
int place_on_host(comm::World& world) {
  const std::vector<std::int64_t> hosts = gather(world, static_cast<std::int64_t>(hash_of_host()));
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(),
                                     hosts[static_cast<std::size_t>(world.rank())]));
}

// Sums of a GPU and of a CPU differ in their bits, and a step is as slow as its slowest rank.
void refuse_mixture(const std::vector<std::int64_t>& has_gpu) {
  const auto first = [&](std::int64_t wanted) {
    return std::find(has_gpu.begin(), has_gpu.end(), wanted) - has_gpu.begin();
  };
  const auto size = std::ssize(has_gpu);
  const auto gpu = first(1), cpu = first(0);
  if (gpu == size || cpu == size) return;
  throw user_error(
      "rank {} computes on a GPU and rank {} on a CPU: the ranks of an island are of one kind; set "
      "device.kind to cuda or to cpu on all of them, or make islands of them "
      "(docs/first-islands.md)",
      gpu, cpu);
}

}  // namespace

bool is_gpu(const Device& device) {
  return device.kind() == DeviceKind::kCuda;
}

std::unique_ptr<comm::GpuLinksUse> connect_gpus(const TrainConfig& config, comm::World& world,
                                                Device& device) {
  if (config.comm.gpu != "nccl" || world.size() == 1 || !is_gpu(device)) return nullptr;
  comm::MakeGpuLinks links;
  world.agree([&] { links = comm::nccl_links(device, config.comm.timeout_s); });
  return std::make_unique<comm::GpuLinksUse>(world, std::move(links));
}

void tell_other_device(const std::string& before, const std::string& now) {
  if (before == now) return;
  const auto named = [](const std::string& gpu) { return gpu.empty() ? "a CPU" : gpu; };
  log::warning(
      "the run has computed on {} so far, and goes on on {}: from here on its bits are others",
      named(before), named(now));
}

std::unique_ptr<Device> open_run_device(const TrainConfig& config, comm::World& world) {
  const int place = place_on_host(world);
  std::unique_ptr<Device> device;
  world.agree([&] {
    device = open_chosen(chosen_device(config.device, place, threads_of(config, world)));
  });
  const std::vector<std::int64_t> has_gpu = gather(world, is_gpu(*device) ? 1 : 0);
  world.agree([&] {
    refuse_mixture(has_gpu);
    if (is_gpu(*device)) refuse_on_gpu(config);
  });
  return device;
}

std::unique_ptr<Device> open_joining_device(const TrainConfig& config, comm::World& world) {
  ATOLL_CHECK(config.device.kind == "cpu", "a rank joins with device.kind = {}",
              config.device.kind);
  return open_device({.threads = threads_of(config, world)});
}

}  // namespace atl::train
