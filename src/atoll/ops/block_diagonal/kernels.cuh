#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Columns [column, column + r) of every row of y: scale x[row - row_begin] in the rows of the
/// block, else 0. See ops/block_diagonal/block_diagonal.h.
template <typename T>
struct SpreadBlock {
  static constexpr const char* kName = "block_diagonal";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;  // the block's rows, (rows, r)
  Global<T> y;        // (N, width)
  std::int64_t row_begin, rows;
  std::int64_t r, column, width;
  std::int64_t size;  // N * r
  float scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= size) return;
    const std::int64_t row = i / r, j = i % r, from = row - row_begin;
    const bool is_of_block = from >= 0 && from < rows;
    const float value = is_of_block ? scale * widened(x.load(from * r + j)) : 0.0F;
    y.store(row * width + column + j, narrowed<T>(value));
  }
};

/// dx += scale times the block of dy.
struct GatherBlock {
  static constexpr const char* kName = "block_diagonal_backward";
  static constexpr int kMaxThreads = 256;
  Global<const float> dy;  // (N, width)
  Global<float> dx;        // the block's rows, (rows, r)
  std::int64_t row_begin;
  std::int64_t r, column, width;
  float scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= dx.size) return;
    const std::int64_t from = (row_begin + i / r) * width + column + i % r;
    dx.store(i, dx.load(i) + scale * dy.load(from));
  }
};

using BlockDiagonalKernels = KernelList<SpreadBlock<float>, SpreadBlock<Bf16>, GatherBlock>;

}  // namespace atl::ops::cuda
