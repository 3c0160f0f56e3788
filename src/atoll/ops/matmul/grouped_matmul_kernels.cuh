#pragma once

// Products in plain tiles: of groups of rows as experts have them, and of operands of two dtypes,
// which cuBLASLt does not take; b may be an Int8Matrix. A sum goes along its length in order, in
// f32, whatever the sizes of groups.

#include <type_traits>

#include "atoll/ops/cuda/int8_bytes.cuh"
#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/row_tiles.cuh"
#include "atoll/ops/matmul/transpose.h"

namespace atl::ops::cuda {

/// c_g = op(a_g) op(b_g) [+ c_g], where op is as in ops::grouped_matmul: groups share out the rows
/// of a and c, or for kTN those of a and b. Without offsets all rows are one group's.
///
/// A thread has 4 x 4 elements of a tile of 64 x 64, whose operands lie in shared memory with the
/// sum's index first.
template <typename A, typename B, typename C, Transpose kT>
struct ProductTiles {
  static constexpr const char* kName = "product_tiles";
  static constexpr int kMaxThreads = 256;
  static constexpr int kTile = 64;
  static constexpr int kDepth = 16;
  static constexpr int kStride = kTile + 4;  // rows of shared memory do not all begin in one bank
  Global<const A> a;
  Global<const B> b;
  Global<const float> scales;          // of b in int8, whose rows the sums run along
  Global<const std::int32_t> offsets;  // (groups + 1), or empty
  Global<C> c;
  int rows;    // of all groups
  int height;  // rows of c in a group, for kTN alone
  int width;   // columns of c
  int length;  // of the sums, but for kTN
  bool accumulate;

  static constexpr int shared_bytes() { return 2 * kDepth * kStride * 4; }

  ATOLL_DEVICE void operator()() const {
    constexpr bool kIsTn = kT == Transpose::kTN;
    const int across = (width + kTile - 1) / kTile;
    const int column = block_x() % across * kTile;
    RowTile tile;
    int first = 0, end = length;  // of the sums
    if constexpr (kIsTn) {
      const int row = block_x() / across * kTile;
      tile = {block_y(), row, height};
      first = offsets.size == 0 ? 0 : offsets.load(block_y());
      end = offsets.size == 0 ? rows : offsets.load(block_y() + 1);
      if (first == end) return;
    } else {
      tile = find_row_tile<kTile>(offsets, rows, block_y());
      if (tile.group < 0) return;
      if (tile.group == static_cast<int>(offsets.size) - 1) end = 0;  // left over: zeroes
    }
    const Shared<float> left = shared_memory<float>(0, kDepth * kStride);
    const Shared<float> right = shared_memory<float>(kDepth * kStride * 4, kDepth * kStride);
    const int ty = thread() / 16 * 4, tx = thread() % 16 * 4;
    float sum[4][4] = {};
    for (std::int64_t begin = first; begin < end; begin += kDepth) {
      load(left, right, tile, column, static_cast<int>(begin), end);
      sync_block();
      ATOLL_UNROLL
      for (int i = 0; i < kDepth; ++i) {
        const auto x = left.template load<4>(i * kStride + ty);
        const auto y = right.template load<4>(i * kStride + tx);
        ATOLL_UNROLL
        for (int r = 0; r < 4; ++r) {
          ATOLL_UNROLL
          for (int s = 0; s < 4; ++s) sum[r][s] = fmaf(x[r], y[s], sum[r][s]);
        }
      }
      sync_block();
    }
    const std::int64_t above = kIsTn ? std::int64_t{tile.group} * height : 0;
    ATOLL_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int row = tile.first + ty + r;
      ATOLL_UNROLL
      for (int s = 0; s < 4; ++s) {
        if (row < tile.end && column + tx + s < width) {
          store((above + row) * width + column + tx + s, sum[r][s]);
        }
      }
    }
  }

 private:
  ATOLL_DEVICE void store(std::int64_t at, float value) const {
    c.store(at, narrowed<C>(accumulate ? widened(c.load(at)) + value : value));
  }
  // Sums' indices [k, k + kDepth) of both operands of a tile; zeroes outside.
  ATOLL_DEVICE void load(const Shared<float>& left, const Shared<float>& right, const RowTile& tile,
                         int column, int k, int end) const {
    constexpr bool kLengthLast = kT != Transpose::kTN;       // of a
    constexpr bool kRightLengthLast = kT == Transpose::kNT;  // of b
    ATOLL_NO_UNROLL
    for (int i = thread(); i < kTile * kDepth; i += num_threads()) {
      const int at = kLengthLast ? k + i % kDepth : k + i / kTile;
      const int row = tile.first + (kLengthLast ? i / kDepth : i % kTile);
      float value = 0;
      if (at < end && row < tile.end) {
        value = widened(a.load(kLengthLast ? std::int64_t{row} * length + at
                                           : std::int64_t{at} * height + row));
      }
      left.store((at - k) * kStride + row - tile.first, value);
    }
    const std::int64_t group = kT == Transpose::kTN ? 0 : tile.group;
    ATOLL_NO_UNROLL
    for (int i = thread(); i < kTile * kDepth; i += num_threads()) {
      const int at = kRightLengthLast ? k + i % kDepth : k + i / kTile;
      const int other = column + (kRightLengthLast ? i / kDepth : i % kTile);
      float value = 0;
      if (at < end && other < width) {
        value = widened(b.load(kRightLengthLast ? (group * width + other) * length + at
                                                : (group * length + at) * width + other));
        if constexpr (sizeof(B) == 1) {
          value *= scales.load((group * width + other) * num_scales(length) + at / kScaleGroup);
        }
      }
      right.store((at - k) * kStride + other - column, value);
    }
  }
};

using GroupedMatmulKernels = KernelList<ProductTiles<float, float, float, Transpose::kNT>,
                                        ProductTiles<float, float, float, Transpose::kNN>,
                                        ProductTiles<float, float, float, Transpose::kTN>,
                                        ProductTiles<Bf16, Bf16, Bf16, Transpose::kNT>,
                                        ProductTiles<Bf16, Bf16, Bf16, Transpose::kNN>,
                                        ProductTiles<Bf16, Bf16, float, Transpose::kTN>,
                                        // Weights of generation.
                                        ProductTiles<float, Bf16, float, Transpose::kNT>,
                                        ProductTiles<float, std::uint8_t, float, Transpose::kNT>,
                                        // The router's gradients.
                                        ProductTiles<float, Bf16, Bf16, Transpose::kNN>,
                                        ProductTiles<float, Bf16, float, Transpose::kTN>>;

}  // namespace atl::ops::cuda
