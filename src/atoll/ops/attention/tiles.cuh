#pragma once

// Tiles of bf16 in shared memory, their products by tensor cores, and how a warp's sums go to
// memory.

#include "atoll/ops/attention/cuda_setup.h"
#include "atoll/ops/cuda/kernel_list.h"

namespace atl::ops::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / kWarp;
constexpr int kPart = 16;          // rows of a product
constexpr int kChunk = 8;          // bf16 in 16 bytes
constexpr float kHidden = -1e30F;  // the score of a key that a query does not see
constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

/// thread(), lane() and warp(), said so that compilers know that they are not below 0: quotients
/// then take fewer instructions and registers.
ATOLL_DEVICE int thread_id() {
  return thread() & 1023;
}
ATOLL_DEVICE int lane_id() {
  return thread() & (kWarp - 1);
}
ATOLL_DEVICE int warp_id() {
  return thread_id() / kWarp;
}

/// A matrix of kRows x kDim bf16 in shared memory. The chunks of a row change places with the row,
/// so that a column of chunks lies in all banks.
template <int kRows, int kDim>
struct Tile {
  static constexpr int kBytes = kRows * kDim * 2;
  static constexpr int kChunks = kDim / kChunk;
  int offset;

  ATOLL_DEVICE static int index(int row, int chunk) {
    return row * kDim + (chunk ^ (row & 7)) * kChunk;
  }
  ATOLL_DEVICE Shared<Bf16> elements() const { return shared_memory<Bf16>(offset, kRows * kDim); }

  /// Where one of kThreads threads that copy begins to read a head's row 0.
  template <int kThreads = kAttentionThreads>
  ATOLL_DEVICE static std::int64_t source(const HeadRows<const Bf16>& from, std::int64_t b,
                                          int head) {
    const int worker = thread_id() % kThreads;
    return from.at(b, worker / kChunks, head) + worker % kChunks * kChunk;
  }
  /// Begins to copy rows [first, first + kRows) of a head; those from `end` on are zeroes.
  template <int kThreads = kAttentionThreads>
  ATOLL_DEVICE void copy(const HeadRows<const Bf16>& from, std::int64_t source, int first,
                         int end) const {
    copy_rows<kThreads, kRows>(from, source + first * from.row, 0, thread_id() % kThreads,
                               end - first);
  }
  /// The same of rows [row, row + kCopied) of the tile, which a warp has for itself.
  template <int kCopied>
  ATOLL_DEVICE void copy_own(const HeadRows<const Bf16>& from, std::int64_t b, int head, int first,
                             int end, int row) const {
    const std::int64_t at =
        from.at(b, first + row + lane_id() / kChunks, head) + lane_id() % kChunks * kChunk;
    copy_rows<kWarp, kCopied>(from, at, row, lane_id(), end - first);
  }

  // Of what follows rows and columns are multiples of 16.

  /// Rows [row, row + 16) and columns [k, k + 16) as the left operand of a product.
  ATOLL_DEVICE void load_left(std::uint32_t (&a)[4], int row, int k) const {
    load_matrices(a, elements(), lane_index(row + lane_id() % 16, k, lane_id() / 16));
  }
  /// Rows [n, n + 16) as columns of the right operands of two products over columns [k, k + 16).
  ATOLL_DEVICE void load_right(std::uint32_t (&b)[4], int n, int k) const {
    load_matrices(b, elements(),
                  lane_index(n + lane_id() % 8 + lane_id() / 16 * 8, k, lane_id() / 8 % 2));
  }
  /// Columns [n, n + 16) as those of the right operands of two products over rows [k, k + 16).
  ATOLL_DEVICE void load_right_rows(std::uint32_t (&b)[4], int k, int n) const {
    load_matrices_transposed(b, elements(), lane_index(k + lane_id() % 16, n, lane_id() / 16));
  }

 private:
  // index(row, column / kChunk + chunk) for row % 8 = lane_id() % 8 and chunks 0 and 1, said so
  // that few numbers of the lane's serve all constant rows and columns.
  ATOLL_DEVICE static int lane_index(int row, int column, int chunk) {
    const int own = (chunk ^ (lane_id() & 7)) * kChunk;
    return row * kDim + (own ^ (column % 64)) + column / 64 * 64;
  }
  template <int kThreads, int kCopied>
  ATOLL_DEVICE void copy_rows(const HeadRows<const Bf16>& from, std::int64_t at, int row,
                              int worker, int rows) const {
    constexpr int kAtOnce = kThreads / kChunks;
    static_assert(kThreads % kChunks == 0 && kCopied % kAtOnce == 0, "all copy as much");
    const int mine = row + worker / kChunks, chunk = worker % kChunks;
    const int end = chunk * kChunk < from.head_dim ? rows : 0;
    ATOLL_UNROLL
    for (int i = 0; i < kCopied; i += kAtOnce) {
      copy_async<kChunk>(elements(), index(mine + i, chunk), from.rows, at, mine + i < end);
      at += kAtOnce * from.row;
    }
  }
};

/// A warp's rows of a tile as left operands of products: in registers from load() on, or read for
/// each product.
template <int kParts, int kRows, int kDim, bool kKeeps>
struct LeftRows {
  static constexpr int kAtOnce = kKeeps ? kDim : 64;  // columns that code names, not a loop
  Tile<kRows, kDim> tile;
  int row;
  std::uint32_t kept[kParts][kKeeps ? kDim / 16 : 1][4];

  ATOLL_DEVICE void load() {
    if constexpr (kKeeps) {
      ATOLL_UNROLL
      for (int k = 0; k < kDim; k += 16) {
        ATOLL_UNROLL
        for (int m = 0; m < kParts; ++m) tile.load_left(kept[m][k / 16], row + kPart * m, k);
      }
    }
  }
  /// Columns [k, k + 16).
  ATOLL_DEVICE void get(std::uint32_t (&a)[kParts][4], int k) const {
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      if constexpr (kKeeps) {
        ATOLL_UNROLL
        for (int i = 0; i < 4; ++i) a[m][i] = kept[m][k / 16][i];
      } else {
        tile.load_left(a[m], row + kPart * m, k);
      }
    }
  }
};

/// The same, in registers but for the last 16 columns, which each of kThreads threads puts aside in
/// shared memory from byte `aside` on.
template <int kParts, int kRows, int kDim, int kThreads>
struct LeftAside {
  static constexpr int kAtOnce = kDim;
  static constexpr int kBytes = kParts * kThreads * 16;
  Tile<kRows, kDim> tile;
  int row;
  int aside;
  std::uint32_t kept[kParts][kDim / 16 - 1][4];

  ATOLL_DEVICE Shared<std::uint32_t> memory() const {
    return shared_memory<std::uint32_t>(aside, kBytes / 4);
  }
  ATOLL_DEVICE void load() {
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      ATOLL_UNROLL
      for (int k = 0; k < kDim - 16; k += 16) {
        tile.load_left(kept[m][k / 16], row + kPart * m, k);
      }
      std::uint32_t last[4];
      tile.load_left(last, row + kPart * m, kDim - 16);
      memory().template store<4>((m * kThreads + thread_id()) * 4,
                                 {last[0], last[1], last[2], last[3]});
    }
  }
  ATOLL_DEVICE void get(std::uint32_t (&a)[kParts][4], int k) const {
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      Pack<std::uint32_t, 4> last;
      if (k == kDim - 16) last = memory().template load<4>((m * kThreads + thread_id()) * 4);
      ATOLL_UNROLL
      for (int i = 0; i < 4; ++i) a[m][i] = k == kDim - 16 ? last[i] : kept[m][k / 16][i];
    }
  }
};

/// s += a times b's rows [first, first + 8 kN8) transposed. Lane l has elements (16 m + l / 4 + e /
/// 2 * 8, 8 j + l % 4 * 2 + e % 2) of the result, in s[m][j][e].
template <int kParts, int kN8, typename Left, int kRowsOfB, int kDim>
ATOLL_DEVICE void multiply(float (&s)[kParts][kN8][4], const Left& a, const Tile<kRowsOfB, kDim>& b,
                           int first) {
  ATOLL_NO_UNROLL
  for (int begin = 0; begin < kDim; begin += Left::kAtOnce) {
    ATOLL_UNROLL
    for (int k = begin; k < begin + Left::kAtOnce; k += 16) {
      std::uint32_t left[kParts][4];
      a.get(left, k);
      ATOLL_UNROLL
      for (int j = 0; j < kN8; j += 2) {
        std::uint32_t right[4];
        b.load_right(right, first + 8 * j, k);
        ATOLL_UNROLL
        for (int m = 0; m < kParts; ++m) {
          mma_m16n8k16(s[m][j], left[m], right[0], right[1]);
          mma_m16n8k16(s[m][j + 1], left[m], right[2], right[3]);
        }
      }
    }
  }
}

/// sum += p times b's rows [first, first + 8 kK8), where p is as multiply() leaves it, rounded to
/// bf16.
template <int kParts, int kK8, int kRows, int kDim>
ATOLL_DEVICE void accumulate(float (&sum)[kParts][kDim / 8][4], const float (&p)[kParts][kK8][4],
                             const Tile<kRows, kDim>& b, int first) {
  ATOLL_UNROLL
  for (int j = 0; j < kK8; j += 2) {
    std::uint32_t left[kParts][4];
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      ATOLL_UNROLL
      for (int i = 0; i < 4; ++i) {
        left[m][i] = pack_bf16(p[m][j + i / 2][i % 2 * 2], p[m][j + i / 2][i % 2 * 2 + 1]);
      }
    }
    ATOLL_UNROLL
    for (int n = 0; n < kDim; n += 16) {
      std::uint32_t right[4];
      b.load_right_rows(right, first + 8 * j, n);
      ATOLL_UNROLL
      for (int m = 0; m < kParts; ++m) {
        mma_m16n8k16(sum[m][n / 8], left[m], right[0], right[1]);
        mma_m16n8k16(sum[m][n / 8 + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Writes a warp's 16 rows of sums, times `upper` and `lower` (its rows l / 4 and l / 4 + 8), to
/// rows [first, first + 16) before `end`, by way of rows [row, row + 16) of `tile`, which no other
/// warp may be reading.
template <int kRows, int kDim>
ATOLL_DEVICE void store_rows(const Tile<kRows, kDim>& tile, int row,
                             const float (&sum)[kDim / 8][4], float upper, float lower,
                             const HeadRows<Bf16>& to, std::int64_t b, int head, int first,
                             int end) {
  using T = Tile<kRows, kDim>;
  const Shared<std::uint32_t> pairs = shared_memory<std::uint32_t>(tile.offset, kRows * kDim / 2);
  const int mine = row + lane_id() / 4;
  sync_warp();
  ATOLL_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    pairs.store(T::index(mine, j) / 2 + lane_id() % 4,
                pack_bf16(sum[j][0] * upper, sum[j][1] * upper));
    pairs.store(T::index(mine + 8, j) / 2 + lane_id() % 4,
                pack_bf16(sum[j][2] * lower, sum[j][3] * lower));
  }
  sync_warp();
  // Not unrolled: the places that it shares with copy_own() would stay in registers in between.
  ATOLL_NO_UNROLL
  for (int i = 0; i < kPart * T::kChunks / kWarp; ++i) {
    const int at = i * kWarp + lane_id();
    const int r = at / T::kChunks, chunk = at % T::kChunks;
    if (first + r < end && chunk * kChunk < to.head_dim) {
      to.rows.template store<kChunk>(
          to.at(b, first + r, head) + chunk * kChunk,
          tile.elements().template load<kChunk>(T::index(row + r, chunk)));
    }
  }
}

/// Rows [first, first + 16) before `end` have sums of f32 already: to = before[i] to +
/// factor[i] sum, for its rows l / 4 and l / 4 + 8. What is there is not read where before is 0.
template <int kDim>
ATOLL_DEVICE void join_rows(const float (&sum)[kDim / 8][4], const float (&before)[2],
                            const float (&factor)[2], const HeadRows<float>& to, std::int64_t b,
                            int head, int first, int end) {
  ATOLL_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int t = first + lane_id() / 4 + 8 * i;
    if (t >= end) continue;
    const std::int64_t begin = to.at(b, t, head) + lane_id() % 4 * 2;
    ATOLL_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      if (8 * j >= to.head_dim) break;
      Pack<float, 2> pair;
      for (int e = 0; e < 2; ++e) pair[e] = 0.0F;
      if (before[i] != 0.0F) pair = to.rows.template load<2>(begin + 8 * j);
      ATOLL_UNROLL
      for (int e = 0; e < 2; ++e) pair[e] = before[i] * pair[e] + factor[i] * sum[j][2 * i + e];
      to.rows.template store<2>(begin + 8 * j, pair);
    }
  }
}

/// The same, added, times one factor.
template <int kDim8>
ATOLL_DEVICE void add_rows(const float (&sum)[kDim8][4], float factor, const HeadRows<float>& to,
                           std::int64_t b, int head, int first, int end) {
  const float before[2] = {1.0F, 1.0F}, factors[2] = {factor, factor};
  join_rows<8 * kDim8>(sum, before, factors, to, b, head, first, end);
}

}  // namespace atl::ops::cuda
