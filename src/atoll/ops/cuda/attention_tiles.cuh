#pragma once

// Tiles of bf16 in shared memory, their products by tensor cores, and how a warp's sums go to
// memory.

#include "atoll/ops/cuda/attention_setup.h"
#include "atoll/ops/cuda/kernel_list.h"

namespace atl::ops::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kTileRows = 64;      // of the tile that a block has for itself
constexpr int kWarpRows = 16;      // of a warp in it
constexpr int kChunk = 8;          // bf16 in 16 bytes
constexpr float kHidden = -1e30F;  // the score of a key that a query does not see
constexpr float kLog2E = 1.44269504F;

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

  /// Begins to copy rows [first, first + kRows) of a head; those from `end` on are zeroes.
  ATOLL_DEVICE void copy(const HeadRows<const Bf16>& from, std::int64_t b, int head, int first,
                         int end) const {
    const std::int64_t begin = from.at(b, first, head);
    ATOLL_NO_UNROLL
    for (int i = 0; i < kRows * kChunks / kAttentionThreads; ++i) {
      const int at = i * kAttentionThreads + thread();
      const int row = at / kChunks, chunk = at % kChunks;
      const bool is_there = first + row < end && chunk * kChunk < from.head_dim;
      copy_async<kChunk>(elements(), index(row, chunk), from.rows,
                         is_there ? begin + row * from.row + chunk * kChunk : 0, is_there);
    }
  }

  /// Rows [row, row + 16) and columns [k, k + 16) as the left operand of a product.
  ATOLL_DEVICE void load_left(std::uint32_t (&a)[4], int row, int k) const {
    load_matrices(a, elements(), index(row + lane() % 16, k / kChunk + lane() / 16));
  }
  /// Rows [n, n + 16) as columns of the right operands of two products over columns [k, k + 16).
  ATOLL_DEVICE void load_right(std::uint32_t (&b)[4], int n, int k) const {
    load_matrices(b, elements(),
                  index(n + lane() % 8 + lane() / 16 * 8, k / kChunk + lane() / 8 % 2));
  }
  /// Columns [n, n + 16) as those of the right operands of two products over rows [k, k + 16).
  ATOLL_DEVICE void load_right_rows(std::uint32_t (&b)[4], int k, int n) const {
    load_matrices_transposed(b, elements(), index(k + lane() % 16, n / kChunk + lane() / 16));
  }
};

/// s += a's rows [row, row + 16) times b transposed. Lane l has elements (l / 4 + e / 2 * 8,
/// 8 j + l % 4 * 2 + e % 2) of the result, in s[j][e].
template <int kRowsOfA, int kRowsOfB, int kDim>
ATOLL_DEVICE void multiply(float (&s)[kRowsOfB / 8][4], const Tile<kRowsOfA, kDim>& a, int row,
                           const Tile<kRowsOfB, kDim>& b) {
  ATOLL_UNROLL
  for (int k = 0; k < kDim; k += 16) {
    std::uint32_t left[4];
    a.load_left(left, row, k);
    ATOLL_UNROLL
    for (int n = 0; n < kRowsOfB; n += 16) {
      std::uint32_t right[4];
      b.load_right(right, n, k);
      mma_m16n8k16(s[n / 8], left, right[0], right[1]);
      mma_m16n8k16(s[n / 8 + 1], left, right[2], right[3]);
    }
  }
}

/// sum += p times b, where p is as multiply() leaves it, rounded to bf16.
template <int kRows, int kDim>
ATOLL_DEVICE void accumulate(float (&sum)[kDim / 8][4], const float (&p)[kRows / 8][4],
                             const Tile<kRows, kDim>& b) {
  ATOLL_UNROLL
  for (int k = 0; k < kRows; k += 16) {
    const float(&first)[4] = p[k / 8];
    const float(&second)[4] = p[k / 8 + 1];
    const std::uint32_t left[4] = {pack_bf16(first[0], first[1]), pack_bf16(first[2], first[3]),
                                   pack_bf16(second[0], second[1]),
                                   pack_bf16(second[2], second[3])};
    ATOLL_UNROLL
    for (int n = 0; n < kDim; n += 16) {
      std::uint32_t right[4];
      b.load_right_rows(right, k, n);
      mma_m16n8k16(sum[n / 8], left, right[0], right[1]);
      mma_m16n8k16(sum[n / 8 + 1], left, right[2], right[3]);
    }
  }
}

/// Writes a warp's 16 rows of sums, times `upper` and `lower` (its rows l / 4 and l / 4 + 8), to
/// rows [first + row, ...) before `end`, by way of the same rows of `tile`, which no other warp may
/// be reading.
template <int kRows, int kDim>
ATOLL_DEVICE void store_rows(const Tile<kRows, kDim>& tile, int row,
                             const float (&sum)[kDim / 8][4], float upper, float lower,
                             const HeadRows<Bf16>& to, std::int64_t b, int head, int first,
                             int end) {
  using T = Tile<kRows, kDim>;
  const Shared<std::uint32_t> pairs = shared_memory<std::uint32_t>(tile.offset, kRows * kDim / 2);
  const int mine = row + lane() / 4;
  sync_warp();
  ATOLL_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    pairs.store(T::index(mine, j) / 2 + lane() % 4,
                pack_bf16(sum[j][0] * upper, sum[j][1] * upper));
    pairs.store(T::index(mine + 8, j) / 2 + lane() % 4,
                pack_bf16(sum[j][2] * lower, sum[j][3] * lower));
  }
  sync_warp();
  ATOLL_UNROLL
  for (int i = 0; i < kWarpRows * T::kChunks / kWarp; ++i) {
    const int at = i * kWarp + lane();
    const int r = row + at / T::kChunks, chunk = at % T::kChunks;
    if (first + r < end && chunk * kChunk < to.head_dim) {
      to.rows.template store<kChunk>(to.at(b, first + r, head) + chunk * kChunk,
                                     tile.elements().template load<kChunk>(T::index(r, chunk)));
    }
  }
}

/// Of a warp's 16 rows, those with sums of f32 that are there already: to = before[i] to +
/// factor[i] sum, for its rows l / 4 and l / 4 + 8. What is there is not read where before is 0.
template <int kDim>
ATOLL_DEVICE void join_rows(int row, const float (&sum)[kDim / 8][4], const float (&before)[2],
                            const float (&factor)[2], const HeadRows<float>& to, std::int64_t b,
                            int head, int first, int end) {
  ATOLL_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int t = first + row + lane() / 4 + 8 * i;
    if (t >= end) continue;
    const std::int64_t begin = to.at(b, t, head) + lane() % 4 * 2;
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
ATOLL_DEVICE void add_rows(int row, const float (&sum)[kDim8][4], float factor,
                           const HeadRows<float>& to, std::int64_t b, int head, int first,
                           int end) {
  const float before[2] = {1.0F, 1.0F}, factors[2] = {factor, factor};
  join_rows<8 * kDim8>(row, sum, before, factors, to, b, head, first, end);
}

}  // namespace atl::ops::cuda
