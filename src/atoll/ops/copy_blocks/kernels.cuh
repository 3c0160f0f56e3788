#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Where block (i, j) begins: offset + i * outer + j * inner.
struct BlockStart {
  std::int64_t offset, outer, inner;
  ATOLL_DEVICE std::int64_t at(std::int64_t i, std::int64_t j) const {
    return offset + i * outer + j * inner;
  }
};

/// Copies blocks of `length` words, V words at a time; see ops/copy_blocks/copy_blocks.h. A word is
/// as many bytes as all lengths and places are multiples of.
template <typename Word, int V>
struct CopyWords {
  static constexpr const char* kName = "copy_blocks";
  static constexpr int kMaxThreads = 256;
  Global<const Word> x;
  Global<Word> y;
  BlockStart from, to;
  std::int64_t columns;  // blocks (i, 0) to (i, columns - 1)
  std::int64_t length;   // of a block
  std::int64_t size;     // of all blocks together

  ATOLL_DEVICE void operator()() const {
    const std::int64_t at = V * (std::int64_t{block_x()} * num_threads() + thread());
    if (at >= size) return;
    const std::int64_t block = at / length, within = at % length;
    const std::int64_t i = block / columns, j = block % columns;
    y.template store<V>(to.at(i, j) + within, x.template load<V>(from.at(i, j) + within));
  }
};

using CopyBlocksKernels = KernelList<CopyWords<std::uint32_t, 4>, CopyWords<std::uint32_t, 1>,
                                     CopyWords<std::uint16_t, 1>, CopyWords<std::uint8_t, 1>>;

}  // namespace atl::ops::cuda
