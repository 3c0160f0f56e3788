#pragma once

// Products with tensor cores: of groups of rows, for bf16, and of f32 by bf16. Tiles are
// attention's: what a sum goes along comes into two or more buffers by turns, with one barrier
// each.

#include <algorithm>
#include <type_traits>

#include "atoll/ops/attention/mma_kernels.cuh"
#include "atoll/ops/cuda/row_tiles.cuh"
#include "atoll/ops/matmul/transpose.h"

namespace atl::ops::cuda {

/// Begins to copy rows [row, end) and columns [column, width) of a matrix of `width` columns, a
/// multiple of 8, as far as the tile reaches; the rest is zeroes.
template <int kThreads, int kRows, int kDim>
ATOLL_DEVICE void copy_tile(const Tile<kRows, kDim>& tile, const Global<const Bf16>& from,
                            std::int64_t row, std::int64_t end, int column, int width) {
  using T = Tile<kRows, kDim>;
  constexpr int kAtOnce = kThreads / T::kChunks;  // rows
  static_assert(kRows % kAtOnce == 0, "all threads copy as much");
  static_assert(kAtOnce % 8 == 0, "a thread's chunks all lie in one column");
  const int r = thread() / T::kChunks, chunk = thread() % T::kChunks;
  const auto rows = static_cast<int>(column + chunk * kChunk < width ? end - row : 0);
  std::int64_t at = (row + r) * width + column + chunk * kChunk;
  int to = T::index(r, chunk);
  ATOLL_UNROLL
  for (int i = 0; i < kRows; i += kAtOnce) {
    const bool is_there = r + i < rows;
    copy_async<kChunk>(tile.elements(), to, from, is_there ? at : 0, is_there);
    at += std::int64_t{kAtOnce} * width;
    to += kAtOnce * kDim;
  }
}

/// Columns [m, m + 16) as rows of the left operand of a product over rows [k, k + 16).
template <int kRows, int kDim>
ATOLL_DEVICE void load_left_rows(std::uint32_t (&a)[4], const Tile<kRows, kDim>& tile, int k,
                                 int m) {
  using T = Tile<kRows, kDim>;
  load_matrices_transposed(a, tile.elements(),
                           T::index(k + lane() % 8 + lane() / 16 * 8, m / kChunk + lane() / 8 % 2));
}

/// c_g = op(a_g) op(b_g), for kTN + c_g: see ProductTiles. A block has kRows x 128 elements of c, a
/// warp kAcross columns of them and at most 64 rows: 64 x 64 where sums are long, as a warp then
/// reads least of shared memory for each product; 32 for kTN, which is as fast as c is read and
/// written.
template <Transpose kT, int kRows>
struct GroupedMma {
  static constexpr const char* kName = "grouped_matmul_mma";
  static constexpr int kColumns = 128;
  static constexpr int kDepth = 64;
  static constexpr bool kIsTn = kT == Transpose::kTN;
  static constexpr bool kIsLarge = !kIsTn && kRows == 128;
  static constexpr int kStages = kIsLarge ? 3 : 2;
  static constexpr int kPiece = std::min(kRows, 64);  // rows of a warp
  static constexpr int kAcross = kIsLarge ? 64 : 32;  // columns of a warp
  static constexpr int kWarpsAcross = kColumns / kAcross;
  static constexpr int kMaxThreads = kRows / kPiece * kWarpsAcross * kWarp;
  using Sums = float[kPiece / 16][kAcross / 8][4];
  using C = std::conditional_t<kIsTn, float, Bf16>;
  using Left = std::conditional_t<kIsTn, Tile<kDepth, kRows>, Tile<kRows, kDepth>>;
  using Right =
      std::conditional_t<kT == Transpose::kNT, Tile<kColumns, kDepth>, Tile<kDepth, kColumns>>;
  Global<const Bf16> a;
  Global<const Bf16> b;
  Global<const std::int32_t> offsets;  // (groups + 1)
  Global<C> c;
  int rows;    // of all groups
  int height;  // rows of c in a group, for kTN alone
  int width;   // columns of c
  int length;  // of the sums, but for kTN

  static constexpr int shared_bytes() { return kStages * (Left::kBytes + Right::kBytes); }
  ATOLL_DEVICE static Left left(int stage) { return {stage * Left::kBytes}; }
  ATOLL_DEVICE static Right right(int stage) {
    return {kStages * Left::kBytes + stage * Right::kBytes};
  }

  ATOLL_DEVICE void operator()() const {
    const int across = (width + kColumns - 1) / kColumns;
    const int column = block_x() % across * kColumns;
    RowTile tile;
    int first = 0, end = length;  // of the sums
    if constexpr (kIsTn) {
      tile = {block_y(), block_x() / across * kRows, height};
      first = offsets.load(block_y());
      end = offsets.load(block_y() + 1);
      if (first == end) return;
    } else {
      tile = find_row_tile<kRows>(offsets, rows, block_y());
      if (tile.group < 0) return;
      if (tile.group == static_cast<int>(offsets.size) - 1) return clear(tile, column);
    }
    // Of the warp, in the tile.
    const int row = warp() / kWarpsAcross * kPiece, at = warp() % kWarpsAcross * kAcross;
    // Warps that have nothing of c only copy.
    const bool is_idle = tile.first + row >= tile.end || column + at >= width;
    Sums sum = {};
    for (int i = 0; i < kStages - 1; ++i) copy(i, tile, column, first + i * kDepth, end);
    int stage = 0, next = kStages - 1;
    for (int k = first; k < end; k += kDepth) {
      wait_copies<kStages - 2>();
      sync_block();
      copy(next, tile, column, k + (kStages - 1) * kDepth, end);
      if (!is_idle) multiply(sum, stage, row, at);
      next = stage;
      stage = stage + 1 < kStages ? stage + 1 : 0;
    }
    if (is_idle) return;
    const bool is_whole = tile.first + row + kPiece <= tile.end && column + at + kAcross <= width;
    is_whole ? store<true>(sum, tile, row, column + at) : store<false>(sum, tile, row, column + at);
  }

 private:
  // Nothing from `end` on.
  ATOLL_DEVICE void copy(int stage, const RowTile& tile, int column, int k, int end) const {
    if (k < end) copy_tiles(stage, tile, column, k, end);
    commit_copies();
  }
  ATOLL_DEVICE void copy_tiles(int stage, const RowTile& tile, int column, int k, int end) const {
    const std::int64_t group = tile.group;
    if constexpr (kIsTn) {
      copy_tile<kMaxThreads>(left(stage), a, k, end, tile.first, height);
      copy_tile<kMaxThreads>(right(stage), b, k, end, column, width);
    } else {
      copy_tile<kMaxThreads>(left(stage), a, tile.first, tile.end, k, length);
      if constexpr (kT == Transpose::kNT) {
        copy_tile<kMaxThreads>(right(stage), b, group * width + column, (group + 1) * width, k,
                               length);
      } else {
        copy_tile<kMaxThreads>(right(stage), b, group * length + k, (group + 1) * length, column,
                               width);
      }
    }
  }
  ATOLL_DEVICE static void multiply(Sums& sum, int stage, int row, int at) {
    ATOLL_UNROLL
    for (int k = 0; k < kDepth; k += 16) {
      std::uint32_t columns[kAcross / 16][4];
      ATOLL_UNROLL
      for (int n = 0; n < kAcross / 16; ++n) {
        if constexpr (kT == Transpose::kNT)
          right(stage).load_right(columns[n], at + 16 * n, k);
        else
          right(stage).load_right_rows(columns[n], k, at + 16 * n);
      }
      ATOLL_UNROLL
      for (int m = 0; m < kPiece / 16; ++m) {
        std::uint32_t own[4];
        if constexpr (kIsTn)
          load_left_rows(own, left(stage), k, row + 16 * m);
        else
          left(stage).load_left(own, row + 16 * m, k);
        ATOLL_UNROLL
        for (int n = 0; n < kAcross / 8; ++n) {
          mma_m16n8k16(sum[m][n], own, columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }
  // Two columns at once: lane l has rows l / 4 and l / 4 + 8, columns l % 4 * 2 and one more. What
  // is added to comes in groups of kAtOnce * 8 rows, whose loads are on their way together; where
  // all is there they hang on no predicate, of which a thread has few.
  template <bool kWhole>
  ATOLL_DEVICE void store(const Sums& sum, const RowTile& tile, int row, int column) const {
    constexpr int kHalves = kPiece / 8, kAtOnce = std::min(kHalves, 4);
    const std::int64_t above = kIsTn ? std::int64_t{tile.group} * height : 0;
    const std::int64_t begin = (above + tile.first + row + lane() / 4) * width;
    const int own = column + lane() % 4 * 2;
    const auto is_there = [&](int half, int n) {
      return kWhole || (tile.first + row + 8 * half + lane() / 4 < tile.end && own + 8 * n < width);
    };
    ATOLL_UNROLL
    for (int first = 0; first < kHalves; first += kAtOnce) {
      Pack<C, 2> pairs[kAtOnce][kAcross / 8];
      ATOLL_UNROLL
      for (int m = 0; m < kAtOnce && kIsTn; ++m) {
        ATOLL_UNROLL
        for (int n = 0; n < kAcross / 8; ++n) {
          if (is_there(first + m, n)) {
            pairs[m][n] = c.template load<2>(begin + 8 * (first + m) * width + own + 8 * n);
          }
        }
      }
      ATOLL_UNROLL
      for (int m = 0; m < kAtOnce; ++m) {
        const int half = first + m;
        ATOLL_UNROLL
        for (int n = 0; n < kAcross / 8; ++n) {
          ATOLL_UNROLL
          for (int e = 0; e < 2; ++e) {
            const float value = sum[half / 2][n][half % 2 * 2 + e];
            if constexpr (kIsTn)
              pairs[m][n][e] += value;
            else
              pairs[m][n][e] = narrowed<C>(value);
          }
          if (is_there(half, n)) {
            c.template store<2>(begin + 8 * half * width + own + 8 * n, pairs[m][n]);
          }
        }
      }
    }
  }
  // Zeroes for a tile of rows left over.
  ATOLL_DEVICE void clear(const RowTile& tile, int column) const {
    Pack<C, kChunk> zero;
    for (int e = 0; e < kChunk; ++e) zero[e] = narrowed<C>(0.0F);
    for (int i = thread(); i < kRows * kColumns / kChunk; i += num_threads()) {
      const int row = tile.first + i / (kColumns / kChunk);
      const int other = column + i % (kColumns / kChunk) * kChunk;
      if (row < tile.end && other < width) {
        c.template store<kChunk>(std::int64_t{row} * width + other, zero);
      }
    }
  }
};

/// c = op(a) b [+ c] of a in f32 and b in bf16, as the router's gradients are: a (height, length),
/// or for kTN (length, height), by b (length, width). An element of a is the sum of three bf16,
/// which hold all of its 24 bits; one that is not finite makes NaN.
///
/// A block has kRows x 64 elements of c, a warp 16 x 32. For kTN, whose sums are long and tiles
/// few, two teams of warps take 16 of a sum's elements each by turns.
template <Transpose kT>
struct MixedMma {
  static constexpr const char* kName = "mixed_matmul_mma";
  static constexpr bool kIsTn = kT == Transpose::kTN;
  static constexpr int kRows = kIsTn ? 32 : 64;
  static constexpr int kColumns = 64;
  static constexpr int kDepth = 64;
  static constexpr int kStages = kIsTn ? 4 : 2;
  static constexpr int kTeams = kIsTn ? 2 : 1;
  static constexpr int kTeamWarps = kRows / 16 * (kColumns / 32);
  static constexpr int kMaxThreads = kTeams * kTeamWarps * kWarp;
  using C = std::conditional_t<kIsTn, float, Bf16>;
  using Right = Tile<kDepth, kColumns>;
  // Of a in shared memory, as it lies in memory; what lanes load lies in all banks.
  static constexpr int kLeftRows = kIsTn ? kDepth : kRows;
  static constexpr int kLeftColumns = kIsTn ? kRows : kDepth;
  static constexpr int kStride = kLeftColumns + (kIsTn ? 4 : 8);
  static constexpr int kLeftBytes = kLeftRows * kStride * 4;
  static constexpr int kPackOfA = 4;
  Global<const float> a;
  Global<const Bf16> b;
  Global<C> c;
  int height, width, length;
  bool accumulate;

  static constexpr int shared_bytes() { return kStages * (kLeftBytes + Right::kBytes); }
  ATOLL_DEVICE static Shared<float> left(int stage) {
    return shared_memory<float>(stage * kLeftBytes, kLeftBytes / 4);
  }
  ATOLL_DEVICE static Right right(int stage) {
    return {kStages * kLeftBytes + stage * Right::kBytes};
  }

  ATOLL_DEVICE void operator()() const {
    const int across = (width + kColumns - 1) / kColumns;
    const int row = block_x() / across * kRows, column = block_x() % across * kColumns;
    const int m = warp() % kTeamWarps / 2 * 16, n = warp() % 2 * 32;
    float sum[4][4] = {};
    for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, row, column, stage * kDepth);
    int stage = 0;
    const int end = length;
    for (int k = 0; k < end; k += kDepth) {
      wait_copies<kStages - 2>();
      sync_block();
      copy((stage + kStages - 1) % kStages, row, column, k + (kStages - 1) * kDepth);
      multiply(sum, stage, m, n);
      stage = (stage + 1) % kStages;
    }
    if constexpr (kTeams == 2) {
      if (!add_teams(sum)) return;
    }
    store(sum, row + m, column + n);
  }

 private:
  ATOLL_DEVICE void copy(int stage, int row, int column, int k) const {
    const int end = length;
    if (k < end) {
      constexpr int kPacks = kLeftColumns / kPackOfA;
      // The first row and column of a, its rows and columns.
      const int top = kIsTn ? k : row, first = kIsTn ? row : k;
      const int rows = kIsTn ? length : height, columns = kIsTn ? height : length;
      ATOLL_UNROLL
      for (int i = 0; i < kLeftRows * kPacks / kMaxThreads; ++i) {
        const int at = i * kMaxThreads + thread();
        const int r = at / kPacks, pack = at % kPacks * kPackOfA;
        const bool is_there = top + r < rows && first + pack < columns;
        copy_async<kPackOfA>(left(stage), r * kStride + pack, a,
                             is_there ? std::int64_t{top + r} * columns + first + pack : 0,
                             is_there);
      }
      copy_tile<kMaxThreads>(right(stage), b, k, length, column, width);
    }
    commit_copies();
  }
  /// What a lane has of a left operand: rows m + l / 4 + 8 i, columns k + l % 4 * 2 + 8 j and one
  /// more.
  ATOLL_DEVICE static Pack<float, 2> load_pair(int stage, int m, int k, int i, int j) {
    const int row = m + lane() / 4 + 8 * i, column = k + lane() % 4 * 2 + 8 * j;
    if constexpr (kIsTn) {
      return {left(stage).load(column * kStride + row),
              left(stage).load((column + 1) * kStride + row)};
    } else {
      return left(stage).template load<2>(row * kStride + column);
    }
  }
  ATOLL_DEVICE static void multiply(float (&sum)[4][4], int stage, int m, int n) {
    ATOLL_UNROLL
    for (int step = 0; step < kDepth / 16 / kTeams; ++step) {
      const int k = (step * kTeams + warp() / kTeamWarps) * 16;
      Pack<float, 2> rest[4];
      ATOLL_UNROLL
      for (int i = 0; i < 4; ++i) rest[i] = load_pair(stage, m, k, i % 2, i / 2);
      std::uint32_t columns[2][4];
      ATOLL_UNROLL
      for (int i = 0; i < 2; ++i) right(stage).load_right_rows(columns[i], k, n + 16 * i);
      ATOLL_UNROLL
      for (int part = 0; part < 3; ++part) {
        std::uint32_t own[4];
        ATOLL_UNROLL
        for (int i = 0; i < 4; ++i) {
          own[i] = pack_bf16(rest[i][0], rest[i][1]);
          rest[i][0] -= std::bit_cast<float>(own[i] << 16);
          rest[i][1] -= std::bit_cast<float>(own[i] & 0xffff0000U);
        }
        ATOLL_UNROLL
        for (int i = 0; i < 4; ++i) {
          mma_m16n8k16(sum[i], own, columns[i / 2][i % 2 * 2], columns[i / 2][i % 2 * 2 + 1]);
        }
      }
    }
  }
  /// Adds the second team's sums to those of the first. Returns whether a warp is of the first.
  ATOLL_DEVICE static bool add_teams(float (&sum)[4][4]) {
    constexpr int kLanes = kTeamWarps * kWarp;
    const Shared<float> box = shared_memory<float>(0, 16 * kLanes);
    const bool is_first = warp() < kTeamWarps;
    sync_block();
    ATOLL_UNROLL
    for (int i = 0; i < 16 && !is_first; ++i) {
      box.store(i * kLanes + thread() - kLanes, sum[i / 4][i % 4]);
    }
    sync_block();
    ATOLL_UNROLL
    for (int i = 0; i < 16 && is_first; ++i) sum[i / 4][i % 4] += box.load(i * kLanes + thread());
    return is_first;
  }
  ATOLL_DEVICE void store(const float (&sum)[4][4], int row, int column) const {
    Pack<C, 2> pairs[2][4];
    const auto place = [&](int i, int n) {
      return std::int64_t{row + lane() / 4 + 8 * i} * width + column + 8 * n + lane() % 4 * 2;
    };
    const auto is_there = [&](int i, int n) {
      return row + lane() / 4 + 8 * i < height && column + 8 * n + lane() % 4 * 2 < width;
    };
    ATOLL_UNROLL
    for (int i = 0; i < 8 && accumulate; ++i) {
      if (is_there(i / 4, i % 4)) pairs[i / 4][i % 4] = c.template load<2>(place(i / 4, i % 4));
    }
    ATOLL_UNROLL
    for (int i = 0; i < 8; ++i) {
      auto& pair = pairs[i / 4][i % 4];
      ATOLL_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float value = sum[i % 4][i / 4 * 2 + e];
        pair[e] = narrowed<C>(accumulate ? widened(pair[e]) + value : value);
      }
      if (is_there(i / 4, i % 4)) c.template store<2>(place(i / 4, i % 4), pair);
    }
  }
};

using GroupedMmaKernels =
    KernelList<GroupedMma<Transpose::kNT, 16>, GroupedMma<Transpose::kNT, 128>,
               GroupedMma<Transpose::kNN, 16>, GroupedMma<Transpose::kNN, 128>,
               GroupedMma<Transpose::kTN, 64>, GroupedMma<Transpose::kTN, 128>,
               MixedMma<Transpose::kNN>, MixedMma<Transpose::kTN>>;

}  // namespace atl::ops::cuda
