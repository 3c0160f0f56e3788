#pragma once

// Times collectives of a world beside other links that move the same bytes.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/comm/world.h"

namespace atl::bench {

enum class What : std::uint8_t { kAllReduce, kReduceScatter, kAllGather };

/// What one call works on: `count` f32 in `data` on every rank, cut evenly for reduce_scatter and
/// all_gather (a multiple of the ranks), and as much memory for what a way needs beside it.
struct Job {
  What what = What::kAllReduce;
  float* data = nullptr;
  float* spare = nullptr;
  std::int64_t count = 0;
  int rank = 0;
  int ranks = 1;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(float); }
  /// What a rank sends at least; GB/s are of these (as in NCCL's "bus bandwidth").
  double bus_bytes() const;
  /// What a rank reads and writes at least where it reaches everybody's memory, halved: a plain
  /// copy of so many bytes reads and writes as much.
  std::size_t copied_bytes() const;
};

/// A way to do it. Called on every rank at the same time; nothing happens between calls.
struct Link {
  std::string name;
  std::function<void(const Job& job)> call;
};

struct Sweep {
  std::int64_t smallest = 4 << 10;  ///< bytes of data, times 4 until `largest`
  std::int64_t largest = 256 << 20;
  int rounds = 15;  ///< each times every way once, one after the other; medians of these are shown
};

/// The world's own collectives.
Link of_world(comm::World& world, std::string name);
/// memcpy of copied_bytes() within memory of this rank, without waiting for anybody.
Link plain_copy();

/// Prints, on rank 0, a table of every operation: GB/s of each link, the first being ours, and by
/// how many times ours is faster than each of the others: of the medians, and of the best. Every
/// rank of the world must call it.
void compare(comm::World& world, const std::vector<Link>& links, const Sweep& sweep);

}  // namespace atl::bench
