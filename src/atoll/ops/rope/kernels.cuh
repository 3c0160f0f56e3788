#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Rotates query and key heads in place: a thread for V neighbouring pairs of elements.
template <typename T, int V>
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
    const std::int64_t pair = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    const std::int64_t pairs_per_row = std::int64_t{heads} * half;
    if (pair >= rows * pairs_per_row) return;
    const std::int64_t row = pair / pairs_per_row;
    const auto in_row = static_cast<int>(pair - row * pairs_per_row);
    const int i = in_row % half;
    const std::int64_t position =
        positions.size == 0 ? row % rows_per_sequence : positions.load(row);
    const std::int64_t low = row * qkv_width + in_row / half * head_dim + i;
    const auto as = Held<T, V>::of(qkv.template load<V>(low));
    const auto bs = Held<T, V>::of(qkv.template load<V>(low + half));
    float turned_a[V], turned_b[V];
    const std::int64_t at = position * head_dim + i;
    const auto cosines = table.template load<V>(at);
    const auto sines = table.template load<V>(at + half);
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const float s = inverse ? -sines[k] : sines[k];
      turned_a[k] = as[k] * cosines[k] - bs[k] * s;
      turned_b[k] = bs[k] * cosines[k] + as[k] * s;
    }
    qkv.template store<V>(low, packed<T>(turned_a));
    qkv.template store<V>(low + half, packed<T>(turned_b));
  }
};

using RopeKernels = KernelList<Rope<float, 1>, Rope<float, 4>, Rope<Bf16, 1>, Rope<Bf16, 4>>;

}  // namespace atl::ops::cuda
