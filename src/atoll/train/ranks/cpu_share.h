#pragma once

#include <cstdint>
#include <span>

#include "atoll/ops/run.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// What one rank computes with.
struct CpuShare {
  std::uint64_t set = 0;     ///< names the host and the CPUs there that the rank may run on
  std::int64_t cpus = 0;     ///< how many these are
  std::int64_t threads = 0;  ///< of the rank
  double flops = 0;          ///< a second, that all its threads do when each has a CPU to itself
};

/// The ranks of `world` that share this machine's CPUs and memory.
int ranks_here(const comm::World& world);

/// Names this machine: the same number for all its processes since it was started.
std::uint64_t hash_of_host();

/// What ranks can do together, FLOP/s: those that run on the same CPUs do no more than these can,
/// however many ranks and threads there are.
double peak_of(std::span<const CpuShare> ranks);

/// Measures this rank's part, and returns that of all; MFU is against it. Of a GPU it is what its
/// maker states for products of bf16; 0 where nothing is known of one. Every rank must call it, and
/// returns only after all have begun.
double measure_peak_of_all(Ranks& ranks, Run& run);

}  // namespace atl::train
