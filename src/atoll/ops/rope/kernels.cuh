#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Rotates query and key heads in place: a thread for V pairs of elements, one after the other.
/// Pairs are of elements 2i and 2i + 1 where they are kNeighbours, else of i and i + half.
template <typename T, int V, bool kNeighbours>
struct Rope {
  static constexpr const char* kName = "rope";
  static constexpr int kMaxThreads = 256;
  Global<T> qkv;                         // (rows, qkv_width)
  Global<const float> table;             // (positions, 2 half): cosines, then sines
  Global<const std::int32_t> positions;  // (rows), or empty: a row's place in its sequence
  std::int64_t rows;
  std::int64_t rows_per_sequence;
  int heads;  // query and key heads
  int head_dim;
  int half;  // pairs of a head: R / 2 of ops/rope/rope.h
  int qkv_width;
  bool inverse;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t pair = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    const std::int64_t pairs_per_row = std::int64_t{heads} * half;
    if (pair >= rows * pairs_per_row) return;
    const std::int64_t row = pair / pairs_per_row;
    const auto in_row = static_cast<int>(pair - row * pairs_per_row);
    const int i = in_row % half;
    const std::int64_t position =
        positions.size == 0 ? row % rows_per_sequence : positions.load(row);
    const std::int64_t head = row * qkv_width + in_row / half * head_dim;
    // Two packs hold the V pairs, whichever elements are one.
    const std::int64_t low = head + (kNeighbours ? 2 * i : i);
    const std::int64_t high = low + (kNeighbours ? V : half);
    const auto lows = Held<T, V>::of(qkv.template load<V>(low));
    const auto highs = Held<T, V>::of(qkv.template load<V>(high));
    float turned[2][V];
    const std::int64_t at = position * 2 * half + i;
    const auto cosines = table.template load<V>(at);
    const auto sines = table.template load<V>(at + half);
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const int first = kNeighbours ? 2 * k : k, second = kNeighbours ? 2 * k + 1 : V + k;
      const float a = first < V ? lows[first] : highs[first - V];
      const float b = second < V ? lows[second] : highs[second - V];
      const float s = inverse ? -sines[k] : sines[k];
      turned[first / V][first % V] = a * cosines[k] - b * s;
      turned[second / V][second % V] = b * cosines[k] + a * s;
    }
    qkv.template store<V>(low, packed<T>(turned[0]));
    qkv.template store<V>(high, packed<T>(turned[1]));
  }
};

using RopeKernels =
    KernelList<Rope<float, 1, false>, Rope<float, 4, false>, Rope<Bf16, 1, false>,
               Rope<Bf16, 4, false>, Rope<float, 1, true>, Rope<float, 4, true>,
               Rope<Bf16, 1, true>, Rope<Bf16, 4, true>>;

}  // namespace atl::ops::cuda
