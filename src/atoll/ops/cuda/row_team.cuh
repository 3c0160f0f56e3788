#pragma once

// Rows that a team of threads shares: each thread has V neighbouring elements of the row, in
// registers, so that a row is read once.

#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// More would leave a thread fewer registers than a norm's backward pass takes.
constexpr int kMaxTeamThreads = 512;

/// How many threads share a row, and how many such teams a block has: a function of sizes alone.
struct RowTeams {
  int team_threads = 0;  ///< whole warps
  int count = 0;

  constexpr int threads() const { return team_threads * count; }
};
constexpr bool fits_row_team(std::int64_t width, int pack) {
  return width <= pack * kMaxTeamThreads;
}
/// Of a row that fits: blocks of 512 threads or a few fewer.
constexpr RowTeams row_teams(std::int64_t width, int pack) {
  const int warps = static_cast<int>((width + 32 * pack - 1) / (32 * pack));
  return {32 * warps, kMaxTeamThreads / 32 / warps};
}

/// Sums over the threads of each team of a block, several at a time. All threads of the block call
/// add() together.
template <int kSums>
struct TeamSums {
  Shared<float> box;  // (2, kSums, warps of the block): two calls' worth
  int warps;          // of a team
  int turn = 0;

  /// What it takes of a block's shared memory, in whole 16 bytes.
  static constexpr int shared_bytes(int threads) {
    return (2 * kSums * (threads / 32) * static_cast<int>(sizeof(float)) + 15) / 16 * 16;
  }
  static ATOLL_DEVICE TeamSums at(int offset, int team_threads) {
    return {shared_memory<float>(offset, 2 * kSums * (num_threads() / kWarp)),
            team_threads / kWarp};
  }

  /// Each value becomes the sum over the team's threads, the same in each: over lanes as a tree,
  /// then over warps from first to last.
  ATOLL_DEVICE void add(float (&values)[kSums]) {
    ATOLL_UNROLL
    for (int s = 0; s < kSums; ++s) values[s] = warp_sum(values[s]);
    if (warps == 1) return;
    const int all = num_threads() / kWarp;
    const int mine = turn * kSums * all;
    turn = 1 - turn;
    if (lane() == 0) {
      ATOLL_UNROLL
      for (int s = 0; s < kSums; ++s) box.store(mine + s * all + warp(), values[s]);
    }
    sync_block();
    const int first = mine + warp() / warps * warps;
    ATOLL_UNROLL
    for (int s = 0; s < kSums; ++s) {
      values[s] = 0;
      for (int w = 0; w < warps; ++w) values[s] += box.load(first + s * all + w);
    }
  }
};

/// Writes columns that the threads of all teams hold, V each, as sums over the teams in their
/// order: to[begin + c] for each column c of `width`. All threads of the block come here. `box` is
/// of column_box_size floats; what it holds may be overwritten only behind another barrier.
template <int V>
ATOLL_DEVICE void store_columns(const float (&values)[V], std::int64_t width, int team_threads,
                                const Shared<float>& box, const Global<float>& to,
                                std::int64_t begin) {
  // (V, threads and a few): lanes are neighbours when they write. When they read, by columns, V
  // lanes have the same thread, and rows that lie 32 / V banks apart.
  const int stride = num_threads() + kWarp / V;
  ATOLL_UNROLL
  for (int i = 0; i < V; ++i) box.store(i * stride + thread(), values[i]);
  sync_block();
  const int teams = num_threads() / team_threads;
  for (int c = thread(); c < width; c += num_threads()) {
    float sum = 0;
    for (int team = 0; team < teams; ++team) {
      sum += box.load(c % V * stride + team * team_threads + c / V);
    }
    to.store(begin + c, sum);
  }
}
template <int V>
constexpr int column_box_size(int threads) {
  return V * (threads + 32 / V);
}

}  // namespace atl::ops::cuda
