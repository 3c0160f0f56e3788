#include "comm_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace atl::bench {

namespace {

using comm::World;

constexpr double kBatchSeconds = 300e-6;  // calls that take less are timed together
constexpr int kMostInBatch = 200;

const char* name_of(What what) {
  switch (what) {
    case What::kAllReduce:
      return "all_reduce";
    case What::kReduceScatter:
      return "reduce_scatter";
    default:
      return "all_gather";
  }
}

std::string bytes_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

/// Seconds of one call, of the slowest rank, timed over `calls` of them. One call goes before, so
/// that each way finds in the caches what it has left there itself, and not what another did.
double time_calls(World& world, const Link& link, const Job& job, int calls) {
  link.call(job);
  world.all().barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) link.call(job);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  double seconds = elapsed.count() / calls;
  world.all().all_reduce({&seconds, {Dtype::kF64, {1}}}, comm::Reduce::kMax);
  return seconds;
}

struct Times {
  double median = 0;
  double best = 0;
};

std::vector<Times> time_links(World& world, const std::vector<Link>& links, const Job& job,
                              const Sweep& sweep) {
  std::vector<int> calls;
  for (const Link& link : links) {
    time_calls(world, link, job, 1);  // touches memory
    const double once = time_calls(world, link, job, 3);
    calls.push_back(std::clamp(static_cast<int>(kBatchSeconds / once), 1, kMostInBatch));
  }
  std::vector<std::vector<double>> seconds(links.size());
  for (int round = 0; round < sweep.rounds; ++round) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      seconds[i].push_back(time_calls(world, links[i], job, calls[i]));
    }
  }
  std::vector<Times> times;
  for (std::vector<double>& all : seconds) {
    std::sort(all.begin(), all.end());
    times.push_back({all[all.size() / 2], all.front()});
  }
  return times;
}

void print_header(const std::vector<Link>& links, What what, int ranks) {
  std::string names =
      fmt::format("\n{}, {} ranks, GB/s of bus bandwidth\n\n| bytes |", name_of(what), ranks);
  std::string rule = "|---|";
  for (std::size_t i = 0; i < links.size(); ++i) {
    names += fmt::format(" {} |", links[i].name);
    rule += "---|";
    if (i == 0) continue;
    names += " ours to it (best) |";
    rule += "---|";
  }
  fmt::print("{}\n{}\n", names, rule);
}

void print_row(const Job& job, const std::vector<Times>& times) {
  std::string row = fmt::format("| {} |", bytes_text(static_cast<std::int64_t>(job.bytes())));
  for (std::size_t i = 0; i < times.size(); ++i) {
    row += fmt::format(" {:.2f} |", job.bus_bytes() / times[i].median / 1e9);
    if (i == 0) continue;
    row += fmt::format(" {:.2f} ({:.2f}) |", times[i].median / times[0].median,
                       times[i].best / times[0].best);
  }
  fmt::print("{}\n", row);
  std::fflush(stdout);
}

using Memory = std::unique_ptr<float[], decltype(&std::free)>;

/// So many zeros that begin on a cache line, as tensors of a model do.
Memory cache_lines(std::size_t count) {
  const std::size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  Memory memory(static_cast<float*>(std::aligned_alloc(64, bytes)), &std::free);
  if (memory == nullptr) throw std::bad_alloc();
  std::fill_n(memory.get(), count, 0.0F);
  return memory;
}

}  // namespace

double Job::bus_bytes() const {
  const double share = static_cast<double>(bytes()) * (ranks - 1) / ranks;
  return what == What::kAllReduce ? 2 * share : share;
}

std::size_t Job::copied_bytes() const {
  const auto n = static_cast<std::size_t>(ranks);
  switch (what) {
    case What::kAllReduce:  // reads and writes 1 / n of each rank's data
      return bytes();
    case What::kReduceScatter:  // reads as much, and writes its own part
      return (bytes() + bytes() / n) / 2;
    default:
      return bytes() / n * (n - 1);
  }
}

Link of_world(World& world, std::string name) {
  return {std::move(name), [&world](const Job& job) {
            comm::Group& all = world.all();
            const Tensor data(job.data, {Dtype::kF32, {job.count}});
            const std::vector<std::int64_t> parts = all.even_parts(job.count);
            const std::int64_t own = parts[static_cast<std::size_t>(job.rank)];
            const Tensor result(job.data + own, {Dtype::kF32, {job.count / job.ranks}});
            if (job.what == What::kAllReduce) return all.all_reduce(data);
            if (job.what == What::kAllGather) return all.all_gather(data, parts);
            all.reduce_scatter(data, parts, result);
          }};
}

Link plain_copy() {
  return {"plain copy",
          [](const Job& job) { std::memcpy(job.spare, job.data, job.copied_bytes()); }};
}

void compare(World& world, const std::vector<Link>& links, const Sweep& sweep) {
  const auto room = static_cast<std::size_t>(sweep.largest) / sizeof(float);
  const Memory data = cache_lines(room), spare = cache_lines(room);
  for (const What what : {What::kAllReduce, What::kReduceScatter, What::kAllGather}) {
    if (world.rank() == 0) print_header(links, what, world.size());
    for (std::int64_t bytes = sweep.smallest; bytes <= sweep.largest; bytes *= 4) {
      const std::int64_t part = bytes / static_cast<std::int64_t>(sizeof(float)) / world.size();
      const Job job{what, data.get(), spare.get(), part * world.size(), world.rank(), world.size()};
      // Sums grow with every call, and what is not finite or denormal may be slower.
      std::fill_n(data.get(), room, 0.0F);
      const std::vector<Times> times = time_links(world, links, job, sweep);
      if (world.rank() == 0) print_row(job, times);
    }
  }
}

}  // namespace atl::bench
