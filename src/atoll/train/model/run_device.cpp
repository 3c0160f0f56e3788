#include "atoll/train/model/run_device.h"

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/comm/nccl/links.h"
#include "atoll/device/gpu_support.h"
#include "atoll/device/sdpa.h"
#include "atoll/train/config/device.h"
#include "atoll/train/ranks/cpu_share.h"
#include "atoll/train/ranks/gpu_places.h"

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

// How many ranks before this one are on its machine, and how many in all.
struct OnHost {
  int place = 0;
  int ranks = 1;
};

OnHost find_on_host(comm::World& world) {
  const std::vector<std::int64_t> hosts = gather(world, static_cast<std::int64_t>(hash_of_host()));
  const std::int64_t own = hosts[static_cast<std::size_t>(world.rank())];
  return {.place = static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), own)),
          .ranks = static_cast<int>(std::count(hosts.begin(), hosts.end(), own))};
}

// Of several GPUs; 0 where that says nothing.
int index_for(const TrainConfig& config, const OnHost& here) {
  const DeviceChoice choice = device_choice_named(config.device.kind);
  if (choice != DeviceChoice::kCuda && choice != DeviceChoice::kAuto) return 0;
  const std::vector<std::string> gpus = gpu_problems();
  const bool has_usable =
      std::any_of(gpus.begin(), gpus.end(), [](const auto& problem) { return problem.empty(); });
  // auto takes the CPU, and open_cuda says why it cannot.
  if (!has_usable) return config.device.index < 0 ? 0 : static_cast<int>(config.device.index);
  return gpu_index(config.device.index, here.place, here.ranks, static_cast<int>(std::ssize(gpus)));
}

std::int64_t identity_of(const TrainConfig& config, const Device& device, int index) {
  if (!is_gpu(device) || config.device.kind == "fake_cuda") return 0;
  return gpu_identities().at(static_cast<std::size_t>(index));
}

// What is set for the other kind of device than the one that auto has taken.
void tell_what_auto_took(const TrainConfig& config, const Device& device, int index,
                         bool is_first_here) {
  if (config.device.kind != "auto" || !is_first_here) return;
  if (!is_gpu(device)) log::info("device.kind=auto takes the CPU: {}", why_no_gpu(index));
  const auto warn = [](const char* key, const std::string& value, const char* taken) {
    log::warning("{} = {} does nothing in this run, as device.kind=auto has taken {}", key, value,
                 taken);
  };
  if (is_gpu(device) && config.device.bf16 != "auto") {
    warn("device.bf16", config.device.bf16, "a GPU");
  }
  if (!is_gpu(device) && config.comm.gpu != "host") warn("comm.gpu", config.comm.gpu, "the CPU");
  if (!is_gpu(device) && config.device.attention != "own") {
    warn("device.attention", config.device.attention, "the CPU");
  }
  if (!is_gpu(device) && config.device.graphs) warn("device.graphs", "true", "the CPU");
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

// A GPU that the host plays plays cuDNN too.
void require_attention(const TrainConfig& config, const Device& device) {
  if (config.device.attention != "cudnn" || !is_gpu(device)) return;
  const std::string problem = config.device.kind == "fake_cuda" ? "" : cudnn_problem();
  if (problem.empty()) return;
  throw user_error("device.attention = cudnn cannot be used: {}; or use --device.attention=own",
                   problem);
}

// A GPU that the host plays multiplies in 8 bits, too.
void require_fp8(const TrainConfig& config, const Device& device) {
  if (config.train.fp8 == "off" || !is_gpu(device) || config.device.kind == "fake_cuda") return;
  const auto [major, minor] = compute_capability();
  const std::string problem = fp8_problem(major, minor, config.train.fp8 == "blocks");
  if (problem.empty()) return;
  throw user_error("train.fp8 = {} cannot be used: {}", config.train.fp8, problem);
}

}  // namespace

bool is_gpu(const Device& device) {
  return device.kind() == DeviceKind::kCuda;
}

std::unique_ptr<comm::GpuLinksUse> connect_gpus(const TrainConfig& config, comm::World& world,
                                                Device& device) {
  if (config.comm.gpu != "nccl" || world.size() == 1 || !is_gpu(device)) return nullptr;
  comm::MakeGpuLinks links;
  const comm::GpuSums sums =
      config.comm.gpu_sums == "nccl" ? comm::GpuSums::kNccl : comm::GpuSums::kOrdered;
  world.agree([&] { links = comm::nccl_links(device, config.comm.timeout_s, sums); });
  return std::make_unique<comm::GpuLinksUse>(world, std::move(links));
}

std::string describe_gpu(const TrainConfig& config, const Device& device, int num_ranks) {
  if (!is_gpu(device)) return "";
  std::string text = device.name();
  if (config.device.attention == "cudnn") text += " with cuDNN's attention";
  if (config.comm.gpu_sums != "nccl" || num_ranks == 1) return text;
  return fmt::format("{}, with sums by NCCL {}", text, comm::nccl_version());
}

void tell_other_device(const std::string& before, const std::string& now) {
  if (before == now) return;
  const auto named = [](const std::string& gpu) { return gpu.empty() ? "a CPU" : gpu; };
  log::warning(
      "the run has computed on {} so far, and goes on on {}: from here on its bits are others",
      named(before), named(now));
}

namespace {

// Ranks compare their calls through the host, which no graph can have.
void refuse_graphs_of_ranks(const TrainConfig& config, int num_ranks) {
  if (!config.device.graphs || num_ranks == 1) return;
  throw user_error(
      "device.graphs is for one GPU, and this run has {} ranks, whose exchanges cannot be in a "
      "graph; leave it out",
      num_ranks);
}

}  // namespace

std::unique_ptr<Device> open_run_device(const TrainConfig& config, comm::World& world) {
  const OnHost here = find_on_host(world);
  int index = 0;
  std::int64_t identity = 0;
  std::unique_ptr<Device> device;
  world.agree([&] {
    index = index_for(config, here);
    device = open_chosen(chosen_device(config.device, index, threads_of(config, world)));
    require_attention(config, *device);
    require_fp8(config, *device);
    identity = identity_of(config, *device, index);
  });
  tell_what_auto_took(config, *device, index, here.place == 0);
  const std::vector<std::int64_t> gpus = gather(world, identity);
  const std::vector<std::int64_t> has_gpu = gather(world, is_gpu(*device) ? 1 : 0);
  world.agree([&] {
    refuse_mixture(has_gpu);
    refuse_shared_gpus(gpus);
    if (!is_gpu(*device)) return;
    refuse_on_gpu(config);
    refuse_graphs_of_ranks(config, world.size());
  });
  return device;
}

std::unique_ptr<Device> open_joining_device(const TrainConfig& config, comm::World& world) {
  ATOLL_CHECK(config.device.kind == "cpu", "a rank joins with device.kind = {}",
              config.device.kind);
  return open_device({.threads = threads_of(config, world)});
}

}  // namespace atl::train
