#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Rotates query and key heads in place: a thread for each pair of elements.
template <typename T>
struct Rope {
  static constexpr const char* kName = "rope";
  static constexpr int kMaxThreads = 256;
  Global<T> qkv;                         // (rows, qkv_width)
  Global<const float> table;             // (positions, head_dim): cosines, then sines
  Global<const std::int32_t> positions;  // (rows), or empty: a row's place in its sequence
  std::int64_t rows;
  std::int64_t rows_per_sequence;
  int heads;  // query and key heads
  int head_dim;
  int qkv_width;
  bool inverse;

  ATOLL_DEVICE void operator()() const {
    const int half = head_dim / 2;
    const std::int64_t pair = std::int64_t{block_x()} * num_threads() + thread();
    const std::int64_t pairs_per_row = std::int64_t{heads} * half;
    if (pair >= rows * pairs_per_row) return;
    const std::int64_t row = pair / pairs_per_row;
    const auto in_row = static_cast<int>(pair % pairs_per_row);
    const int i = in_row % half;
    const std::int64_t position =
        positions.size == 0 ? row % rows_per_sequence : positions.load(row);
    const float cosine = table.load(position * head_dim + i);
    const float sine = table.load(position * head_dim + half + i);
    const float s = inverse ? -sine : sine;
    const std::int64_t low = row * qkv_width + in_row / half * head_dim + i;
    const float a = widened(qkv.load(low));
    const float b = widened(qkv.load(low + half));
    qkv.store(low, narrowed<T>(a * cosine - b * s));
    qkv.store(low + half, narrowed<T>(b * cosine + a * s));
  }
};

using RopeKernels = KernelList<Rope<float>, Rope<Bf16>>;

}  // namespace atl::ops::cuda
