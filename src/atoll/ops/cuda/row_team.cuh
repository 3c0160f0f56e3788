#pragma once

// Rows that a team of threads shares: each thread has V neighbouring elements of the row, in
// registers, so that a row is read once.

#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// More would leave a thread fewer registers than a norm's backward pass takes.
constexpr int kMaxTeamThreads = 256;
/// Of V elements each, as many as a thread has of a row at most. With so many a warp has a row of
/// 1024 bf16 for itself, and waits for no other.
constexpr int kTeamPacks = 4;

/// How many threads share a row, and how many such teams a block has: a function of sizes alone.
struct RowTeams {
  int team_threads = 0;  ///< whole warps
  int count = 0;

  constexpr int threads() const { return team_threads * count; }
};
constexpr bool fits_row_team(std::int64_t width, int pack) {
  return width <= kTeamPacks * pack * kMaxTeamThreads;
}
/// Of a row that fits: blocks of 256 threads or a few fewer.
constexpr RowTeams row_teams(std::int64_t width, int pack) {
  const int each = 32 * kTeamPacks * pack;
  const int warps = static_cast<int>((width + each - 1) / each);
  return {32 * warps, kMaxTeamThreads / 32 / warps};
}

/// A thread's part of a row: pack p is of columns [column(p), column(p) + V).
template <typename T, int V>
struct RowPart {
  Held<T, V> packs[kTeamPacks];

  /// In registers stay elements as they are stored, not what was computed from them.
  ATOLL_DEVICE void keep_as_stored() {
    ATOLL_UNROLL
    for (Held<T, V>& pack : packs) {
      ATOLL_UNROLL
      for (std::uint32_t& word : pack.words) compute_again(word);
    }
  }
};
/// Which columns a thread has.
template <int V>
struct RowColumns {
  int first;   // of pack 0
  int stride;  // from one pack to the next
  int width;

  static ATOLL_DEVICE RowColumns of(int team_threads, std::int64_t width) {
    return {thread() % team_threads * V, team_threads * V, static_cast<int>(width)};
  }
  ATOLL_DEVICE int column(int p) const { return first + p * stride; }
  ATOLL_DEVICE bool has(int p) const { return column(p) < width; }
  /// The row that begins at element `begin`; zeroes where `is_there` is false.
  template <typename T, typename Memory>
  ATOLL_DEVICE RowPart<T, V> load(const Memory& from, std::int64_t begin, bool is_there) const {
    RowPart<T, V> part;
    ATOLL_UNROLL
    for (int p = 0; p < kTeamPacks; ++p) {
      if (is_there && has(p)) {
        part.packs[p] = Held<T, V>::of(from.template load<V>(begin + column(p)));
      } else {
        part.packs[p] = {};
      }
    }
    return part;
  }
};

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
