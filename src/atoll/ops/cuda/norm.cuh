#pragma once

// Norms over rows that teams of threads hold in registers, and over the heads of a row.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/row_team.cuh"

namespace atl::ops::cuda {

/// y = (x - mean) rstd weight + bias (kLayer), or x rstd weight. A team for each row, and rows of a
/// block for each team in turn.
template <typename T, int V, bool kLayer>
struct NormForward {
  static constexpr const char* kName = kLayer ? "layer_norm_forward" : "rms_norm_forward";
  static constexpr int kMaxThreads = kMaxTeamThreads;
  using Sums = TeamSums<1>;
  Global<const T> x;       // (rows, width)
  Global<const T> weight;  // (width)
  Global<const T> bias;    // (width), as mean for kLayer alone
  Global<T> y;             // (rows, width)
  Global<float> mean;      // (rows)
  Global<float> rstd;      // (rows)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_block;
  int team_threads;
  float eps;

  ATOLL_DEVICE void operator()() const {
    Sums sums = Sums::at(0, team_threads);
    const int team = thread() / team_threads;
    const std::int64_t column = std::int64_t{thread() % team_threads} * V;
    const bool has_columns = column < width;
    const std::int64_t first = block_x() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    Pack<T, V> w = {}, shift = {};
    if (has_columns) w = weight.template load<V>(column);
    if constexpr (kLayer) {
      if (has_columns) shift = bias.template load<V>(column);
    }
    for (std::int64_t begin = first; begin < last; begin += num_threads() / team_threads) {
      const std::int64_t row = begin + team;
      const bool is_there = has_columns && row < last;
      Pack<T, V> xs = {};
      if (is_there) xs = x.template load<V>(row * width + column);
      run_row(sums, row, column, is_there, xs, w, shift);
    }
  }

  ATOLL_DEVICE void run_row(Sums& sums, std::int64_t row, std::int64_t column, bool is_there,
                            const Pack<T, V>& xs, const Pack<T, V>& w,
                            const Pack<T, V>& shift) const {
    const auto count = static_cast<float>(width);
    float m = 0;
    if constexpr (kLayer) {
      float sum[1] = {};
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) sum[0] += widened(xs[i]);
      sums.add(sum);
      m = sum[0] / count;
    }
    float square[1] = {};
    if (is_there) {
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        const float value = widened(xs[i]) - m;
        square[0] += value * value;
      }
    }
    sums.add(square);
    if (!is_there) return;
    const float r = 1.0F / sqrtf(square[0] / count + eps);
    if (column == 0) {
      if constexpr (kLayer) mean.store(row, m);
      rstd.store(row, r);
    }
    Pack<T, V> out;
    ATOLL_UNROLL
    for (int i = 0; i < V; ++i) {
      const float value = (widened(xs[i]) - m) * r * widened(w[i]);
      if constexpr (kLayer)
        out[i] = narrowed<T>(value + widened(shift[i]));
      else
        out[i] = narrowed<T>(value);
    }
    y.template store<V>(row * width + column, out);
  }
};

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) [+ dresidual], g = dy weight; without mean(g) for
/// RMS. sums[block] = the sums over the block's rows of dy xhat, and for kLayer those of dy. dx may
/// be dy. Teams as in NormForward.
template <typename T, int V, bool kLayer>
struct NormBackward {
  static constexpr const char* kName = kLayer ? "layer_norm_backward" : "rms_norm_backward";
  static constexpr int kMaxThreads = kMaxTeamThreads;
  static constexpr int kSums = kLayer ? 2 : 1;
  using Sums = TeamSums<kSums>;
  Global<const T> x;
  Global<const T> weight;
  Global<const float> mean;
  Global<const float> rstd;
  Global<const T> dy;
  Global<const T> dresidual;  // none: no elements
  Global<T> dx;
  Global<float> sums;  // (row blocks, kSums, width); none: no elements
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_block;
  int team_threads;

  static constexpr int shared_bytes() { return shared_bytes_of(kMaxThreads); }  // at most
  static constexpr int shared_bytes_of(int threads) {
    return Sums::shared_bytes(threads) +
           column_box_size<V>(threads) * static_cast<int>(sizeof(float));
  }

  ATOLL_DEVICE void operator()() const {
    Sums team_sums = Sums::at(0, team_threads);
    const int team = thread() / team_threads;
    const std::int64_t column = std::int64_t{thread() % team_threads} * V;
    const bool has_columns = column < width;
    const std::int64_t first = block_x() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    Pack<T, V> w = {};
    if (has_columns) w = weight.template load<V>(column);
    float of_columns[kSums][V] = {};
    for (std::int64_t begin = first; begin < last; begin += num_threads() / team_threads) {
      const std::int64_t row = begin + team;
      run_row(team_sums, row, row * width + column, has_columns && row < last, w, of_columns);
    }
    if (sums.size == 0) return;
    const Shared<float> box =
        shared_memory<float>(Sums::shared_bytes(num_threads()), column_box_size<V>(num_threads()));
    ATOLL_UNROLL
    for (int s = 0; s < kSums; ++s) {
      if (s > 0) sync_block();
      store_columns<V>(of_columns[s], width, team_threads, box, sums,
                       (std::int64_t{block_x()} * kSums + s) * width);
    }
  }

  ATOLL_DEVICE void run_row(Sums& team_sums, std::int64_t row, std::int64_t at, bool is_there,
                            const Pack<T, V>& w, float (&of_columns)[kSums][V]) const {
    Pack<T, V> xs = {}, dys = {}, past = {};
    float m = 0, r = 0;
    if (is_there) {
      xs = x.template load<V>(at);
      dys = dy.template load<V>(at);
      if (dresidual.size > 0) past = dresidual.template load<V>(at);
      if constexpr (kLayer) m = mean.load(row);
      r = rstd.load(row);
    }
    float row_sums[kSums] = {};  // of g xhat, and of g
    ATOLL_UNROLL
    for (int i = 0; i < V; ++i) {
      const float d = widened(dys[i]), xhat = (widened(xs[i]) - m) * r;
      const float g = d * widened(w[i]);
      row_sums[0] += g * xhat;
      of_columns[0][i] += d * xhat;
      if constexpr (kLayer) {
        row_sums[1] += g;
        of_columns[1][i] += d;
      }
    }
    team_sums.add(row_sums);
    if (!is_there) return;
    const auto count = static_cast<float>(width);
    const float mean_gx = row_sums[0] / count;
    float mean_g = 0;
    if constexpr (kLayer) mean_g = row_sums[1] / count;
    Pack<T, V> out;
    ATOLL_UNROLL
    for (int i = 0; i < V; ++i) {
      const float g = widened(dys[i]) * widened(w[i]);
      float grad = r * (g - mean_g - (widened(xs[i]) - m) * r * mean_gx);
      if (dresidual.size > 0) grad += widened(past[i]);
      out[i] = narrowed<T>(grad);
    }
    dx.template store<V>(at, out);
  }
};

/// y = rms_norm(x) over each query and key head; value heads are copied. A warp for each head.
template <typename T>
struct QkNormForward {
  static constexpr const char* kName = "qk_norm_forward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;         // (rows, num_heads of all three kinds, head_dim)
  Global<const T> q_weight;  // (head_dim)
  Global<const T> k_weight;
  Global<T> y;
  Global<float> rstd;  // (rows, query and key heads)
  std::int64_t rows;
  int query_heads;
  int kv_heads;
  int head_dim;
  float eps;

  ATOLL_DEVICE void operator()() const {
    const int heads = query_heads + 2 * kv_heads;
    const int normed = query_heads + kv_heads;
    const std::int64_t at = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (at >= rows * heads) return;
    const auto head = static_cast<int>(at % heads);
    float r = 0;
    if (head < normed) {
      float square = 0;
      for (int d = lane(); d < head_dim; d += kWarp) {
        const float value = widened(x.load(at * head_dim + d));
        square += value * value;
      }
      r = 1.0F / sqrtf(warp_sum(square) / static_cast<float>(head_dim) + eps);
      if (lane() == 0) rstd.store(at / heads * normed + head, r);
    }
    for (int d = lane(); d < head_dim; d += kWarp) {
      const T value = x.load(at * head_dim + d);
      if (head >= normed) {
        y.store(at * head_dim + d, value);
        continue;
      }
      const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
      y.store(at * head_dim + d, narrowed<T>(widened(value) * r * w));
    }
  }
};

/// dx of QkNormForward; dx may be dy.
template <typename T>
struct QkNormBackward {
  static constexpr const char* kName = "qk_norm_backward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;
  Global<const T> q_weight;
  Global<const T> k_weight;
  Global<const float> rstd;
  Global<const T> dy;
  Global<T> dx;
  std::int64_t rows;
  int query_heads;
  int kv_heads;
  int head_dim;

  ATOLL_DEVICE void operator()() const {
    const int heads = query_heads + 2 * kv_heads;
    const int normed = query_heads + kv_heads;
    const std::int64_t at = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (at >= rows * heads) return;
    const auto head = static_cast<int>(at % heads);
    float r = 0, mean_gx = 0;
    if (head < normed) {
      r = rstd.load(at / heads * normed + head);
      float sum = 0;
      for (int d = lane(); d < head_dim; d += kWarp) {
        const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
        sum += widened(dy.load(at * head_dim + d)) * w * (widened(x.load(at * head_dim + d)) * r);
      }
      mean_gx = warp_sum(sum) / static_cast<float>(head_dim);
    }
    for (int d = lane(); d < head_dim; d += kWarp) {
      const T grad = dy.load(at * head_dim + d);
      if (head >= normed) {
        dx.store(at * head_dim + d, grad);
        continue;
      }
      const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
      const float xhat = widened(x.load(at * head_dim + d)) * r;
      dx.store(at * head_dim + d, narrowed<T>(r * (widened(grad) * w - xhat * mean_gx)));
    }
  }
};

template <typename T, int V>
using NormKernelsOf = KernelList<NormForward<T, V, false>, NormForward<T, V, true>,
                                 NormBackward<T, V, false>, NormBackward<T, V, true>>;
using NormKernels = Joined<NormKernelsOf<float, 4>, NormKernelsOf<Bf16, 8>>;
using QkNormKernels = KernelList<QkNormForward<float>, QkNormForward<Bf16>, QkNormBackward<float>,
                                 QkNormBackward<Bf16>>;

}  // namespace atl::ops::cuda
