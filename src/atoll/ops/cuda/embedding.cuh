#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// y[row] (+)= table[index], with index = tokens[row], or, where there are none, the row's place in
/// its sequence. A warp for each row.
template <typename T, typename Y, bool kAdds>
struct EmbeddingForward {
  static constexpr const char* kName = kAdds ? "position_embedding_forward" : "embedding_forward";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> tokens;  // (rows), or empty
  Global<const T> table;              // (V, width)
  Global<Y> y;                        // (rows, width)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_sequence;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t index = tokens.size == 0 ? row % rows_per_sequence : tokens.load(row);
    for (std::int64_t c = lane(); c < width; c += kWarp) {
      const float value = widened(table.load(index * width + c));
      const float before = kAdds ? widened(y.load(row * width + c)) : 0.0F;
      y.store(row * width + c, narrowed<Y>(kAdds ? before + value : value));
    }
  }
};

/// dtable[index of row] += dy[row], in the order of rows. The block of a row whose index no earlier
/// row has adds up all rows with that index, in order; the others end. No atomics, and no scratch:
/// each block looks through the indices, kMaxThreads at a time. Rows whose index is not of the
/// table, as of a token of another rank's part, are left out.
template <typename T>
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  static constexpr int kMaxThreads = 128;
  static constexpr int kWarps = kMaxThreads / kWarp;
  Global<const std::int32_t> tokens;  // (rows), or empty
  Global<const T> dy;                 // (rows, width)
  Global<float> dtable;               // (V, width)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_sequence;
  std::int64_t first;  // the token of row 0 of dtable

  static constexpr int shared_bytes() { return kWarps * static_cast<int>(sizeof(std::uint32_t)); }

  ATOLL_DEVICE std::int64_t index(std::int64_t row) const {
    return tokens.size == 0 ? row % rows_per_sequence : tokens.load(row) - first;
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t own = index(block_x());
    if (own < 0 || own * width >= dtable.size) return;  // the whole block alike
    const Shared<std::uint32_t> found = shared_memory<std::uint32_t>(0, kWarps);
    // Which of the kMaxThreads rows from `begin` on have this block's index: a bit each.
    const auto look = [&](std::int64_t begin) {
      const std::int64_t row = begin + thread();
      const std::uint32_t bits = ballot(row < rows && index(row) == own);
      sync_block();
      if (lane() == 0) found.store(warp(), bits);
      sync_block();
    };
    for (std::int64_t begin = 0; begin < block_x(); begin += kMaxThreads) {
      look(begin);
      for (int w = 0; w < kWarps; ++w) {
        const std::uint32_t bits = found.load(w);
        const std::int64_t first = begin + w * kWarp;
        for (int i = 0; i < kWarp; ++i) {
          // The same for all threads of the block: nobody is left at a barrier.
          if ((bits >> i & 1) != 0 && first + i < block_x()) return;
        }
      }
    }
    const std::int64_t start = block_x() / kMaxThreads * kMaxThreads;
    for (std::int64_t begin = start; begin < rows; begin += kMaxThreads) {
      look(begin);
      for (int w = 0; w < kWarps; ++w) {
        std::uint32_t bits = found.load(w);
        while (bits != 0) {
          int i = 0;
          while ((bits >> i & 1) == 0) ++i;
          bits &= bits - 1;
          const std::int64_t row = begin + w * kWarp + i;
          for (std::int64_t c = thread(); c < width; c += num_threads()) {
            const std::int64_t at = own * width + c;
            dtable.store(at, dtable.load(at) + widened(dy.load(row * width + c)));
          }
        }
      }
    }
  }
};

using EmbeddingKernels =
    KernelList<EmbeddingForward<float, float, false>, EmbeddingForward<Bf16, Bf16, false>,
               EmbeddingForward<Bf16, float, false>, EmbeddingForward<float, float, true>,
               EmbeddingForward<Bf16, Bf16, true>, EmbeddingBackward<float>,
               EmbeddingBackward<Bf16>>;

}  // namespace atl::ops::cuda
