#include "atoll/train/ranks/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/device/gpu_figures.h"
#include "atoll/ops/peak.h"

namespace atl::train {

namespace {

// Ranks of one host that are bound to the same CPUs, or to none, find the same.
std::uint64_t cpu_set_name() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  const std::uint64_t host = hash_of_host();
  Hasher hasher;
  hasher.update(&cpus, sizeof cpus);
  hasher.update(&host, sizeof host);
  return hasher.digest().low;
}

CpuShare measure_cpu(Run& run) {
  return {.set = cpu_set_name(),
          .cpus = available_cpus(),
          .threads = run.threads().num_threads(),
          .flops = ops::measure_peak_flops(run)};
}

// Each rank has one, which no other shares: a set of its own.
CpuShare state_gpu(const Device& device, int rank) {
  constexpr double kTera = 1e12;
  const GpuFigures* figures = find_gpu_figures(device.name());
  return {.set = static_cast<std::uint64_t>(rank),
          .cpus = 1,
          .threads = 1,
          .flops = figures == nullptr ? 0 : kTera * figures->bf16_tflops};
}

}  // namespace

std::uint64_t hash_of_host() {
  std::string host;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host;
  Hasher hasher;
  hasher.update(host.data(), host.size());
  return hasher.digest().low;
}

double peak_of(std::span<const CpuShare> ranks) {
  struct Host {
    std::int64_t cpus = 0;
    std::int64_t threads = 0;
    double flops = 0;
  };
  std::map<std::uint64_t, Host> hosts;
  for (const CpuShare& rank : ranks) {
    Host& host = hosts[rank.set];
    host.cpus = std::max(host.cpus, rank.cpus);
    host.threads += rank.threads;
    host.flops += rank.flops;
  }
  double sum = 0;
  for (const auto& [set, host] : hosts) {
    const double busy = static_cast<double>(std::min(host.cpus, host.threads));
    sum += host.flops * busy / static_cast<double>(std::max<std::int64_t>(host.threads, 1));
  }
  return sum;
}

double measure_peak_of_all(Ranks& ranks, Run& run) {
  ranks.group().barrier();  // all at once, as the ranks of a host share its CPUs
  const Device& device = run.stream->device();
  const CpuShare mine =
      device.kind() == DeviceKind::kCpu ? measure_cpu(run) : state_gpu(device, ranks.rank());
  std::vector<CpuShare> all(static_cast<std::size_t>(ranks.size()));
  all[static_cast<std::size_t>(ranks.rank())] = mine;
  constexpr std::int64_t kWidth = sizeof(CpuShare) / sizeof(std::int64_t);
  std::vector<std::int64_t> parts;
  for (std::int64_t rank = 0; rank <= ranks.size(); ++rank) parts.push_back(kWidth * rank);
  ranks.group().all_gather({all.data(), {Dtype::kI64, {parts.back()}}}, parts);
  const bool is_unknown =
      std::any_of(all.begin(), all.end(), [](const CpuShare& share) { return share.flops == 0; });
  return is_unknown ? 0 : peak_of(all);
}

int ranks_here(const comm::World& world) {
  return world.options().local_ranks > 0 ? world.options().local_ranks : world.size();
}

}  // namespace atl::train
