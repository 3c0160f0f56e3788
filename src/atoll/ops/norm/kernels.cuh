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
  static constexpr int kMinBlocks = 3;
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
  float offset;  // added to the weight of an RMS norm

  using Part = RowPart<T, V>;

  ATOLL_DEVICE void operator()() const {
    Sums sums = Sums::at(0, team_threads);
    const auto columns = RowColumns<V>::of(team_threads, width);
    const int teams = num_threads() / team_threads;
    const std::int64_t first = block_x() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    Part w = columns.template load<T>(weight, 0, true);
    Part shift = {};
    if constexpr (kLayer) shift = columns.template load<T>(bias, 0, true);
    const int team = thread() / team_threads;
    for (std::int64_t begin = first; begin < last; begin += teams) {
      run_row(sums, columns, begin + team, begin + team < last, w, shift);
    }
  }

  ATOLL_DEVICE void run_row(Sums& sums, const RowColumns<V>& columns, std::int64_t row,
                            bool is_there, Part& w, Part& shift) const {
    const auto count = static_cast<float>(width);
    Part xs = columns.template load<T>(x, row * width, is_there);
    float m = 0;
    if constexpr (kLayer) {
      float sum[1] = {};
      ATOLL_UNROLL
      for (int p = 0; p < kTeamPacks; ++p) {
        ATOLL_UNROLL
        for (int i = 0; i < V; ++i) sum[0] += xs.packs[p][i];
      }
      sums.add(sum);
      m = sum[0] / count;
      xs.keep_as_stored();
    }
    float square[1] = {};
    ATOLL_UNROLL
    for (int p = 0; p < kTeamPacks; ++p) {
      if (!columns.has(p)) continue;
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        const float value = xs.packs[p][i] - m;
        square[0] = fmaf(value, value, square[0]);
      }
    }
    sums.add(square);
    xs.keep_as_stored();
    w.keep_as_stored();
    if constexpr (kLayer) shift.keep_as_stored();
    if (!is_there) return;
    const float r = 1.0F / sqrtf(square[0] / count + eps);
    if (columns.column(0) == 0) {
      if constexpr (kLayer) mean.store(row, m);
      rstd.store(row, r);
    }
    ATOLL_UNROLL
    for (int p = 0; p < kTeamPacks; ++p) {
      if (!columns.has(p)) continue;
      float out[V];
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        const float value = (xs.packs[p][i] - m) * r;
        if constexpr (kLayer)
          out[i] = fmaf(value, w.packs[p][i], shift.packs[p][i]);
        else
          out[i] = value * (offset + w.packs[p][i]);
      }
      y.template store<V>(row * width + columns.column(p), packed<T>(out));
    }
  }
};

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) [+ dresidual], g = dy weight; without mean(g) for
/// RMS. sums[block] = the sums over the block's rows of dy xhat, and for kLayer those of dy. dx may
/// be dy. Teams as in NormForward.
template <typename T, int V, bool kLayer>
struct NormBackward {
  static constexpr const char* kName = kLayer ? "layer_norm_backward" : "rms_norm_backward";
  static constexpr int kMaxThreads = kMaxTeamThreads;
  static constexpr int kMinBlocks = 1;
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
  float offset;  // as in NormForward

  static constexpr int shared_bytes() { return shared_bytes_of(kMaxThreads); }  // at most
  static constexpr int shared_bytes_of(int threads) {
    return Sums::shared_bytes(threads) +
           column_box_size<V>(threads) * static_cast<int>(sizeof(float));
  }

  using Part = RowPart<T, V>;
  using Columns = float[kSums][kTeamPacks][V];
  /// What is read of a row.
  struct Row {
    std::int64_t begin;  // its first element
    bool is_there;
    Part x, dy, past;
    float mean, rstd;
  };

  ATOLL_DEVICE float scale_of(float w) const { return kLayer ? w : offset + w; }

  ATOLL_DEVICE Row load(const RowColumns<V>& columns, std::int64_t row, bool is_there) const {
    const std::int64_t begin = row * width;
    Row now = {begin, is_there};
    now.x = columns.template load<T>(x, begin, is_there);
    now.dy = columns.template load<T>(dy, begin, is_there);
    now.past = columns.template load<T>(dresidual, begin, is_there && dresidual.size > 0);
    now.mean = kLayer && is_there ? mean.load(row) : 0.0F;
    now.rstd = is_there ? rstd.load(row) : 0.0F;
    return now;
  }

  ATOLL_DEVICE void operator()() const {
    Sums team_sums = Sums::at(0, team_threads);
    const auto columns = RowColumns<V>::of(team_threads, width);
    const int teams = num_threads() / team_threads;
    const std::int64_t first = block_x() * rows_per_block;
    const auto count =
        static_cast<int>(rows - first < rows_per_block ? rows - first : rows_per_block);
    Part w = columns.template load<T>(weight, 0, true);
    Columns of_columns = {};
    const int team = thread() / team_threads;
    for (int done = 0; done < count; done += teams) {
      Row now = load(columns, first + done + team, done + team < count);
      run_row(team_sums, columns, now, w, of_columns);
    }
    if (sums.size > 0) store_sums(of_columns, columns);
  }

  ATOLL_DEVICE void store_sums(const Columns& of_columns, const RowColumns<V>& columns) const {
    const Shared<float> box =
        shared_memory<float>(Sums::shared_bytes(num_threads()), column_box_size<V>(num_threads()));
    ATOLL_UNROLL
    for (int s = 0; s < kSums; ++s) {
      ATOLL_UNROLL
      for (int p = 0; p < kTeamPacks; ++p) {
        const int left = p * columns.stride;
        if (left >= columns.width) continue;  // for the whole block alike
        if (s > 0 || p > 0) sync_block();
        store_columns<V>(
            of_columns[s][p],
            columns.width - left < columns.stride ? columns.width - left : columns.stride,
            team_threads, box, sums, (std::int64_t{block_x()} * kSums + s) * width + left);
      }
    }
  }

  ATOLL_DEVICE void run_row(Sums& team_sums, const RowColumns<V>& columns, Row& now, Part& w,
                            Columns& of_columns) const {
    w.keep_as_stored();
    float row_sums[kSums] = {};  // of g xhat, and of g
    ATOLL_UNROLL
    for (int p = 0; p < kTeamPacks; ++p) {
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        const float d = now.dy.packs[p][i];
        const float xhat = (now.x.packs[p][i] - now.mean) * now.rstd;
        const float g = d * scale_of(w.packs[p][i]);
        row_sums[0] = fmaf(g, xhat, row_sums[0]);
        of_columns[0][p][i] = fmaf(d, xhat, of_columns[0][p][i]);
        if constexpr (kLayer) {
          row_sums[1] += g;
          of_columns[1][p][i] += d;
        }
      }
    }
    team_sums.add(row_sums);
    now.x.keep_as_stored();
    now.dy.keep_as_stored();
    w.keep_as_stored();
    if (!now.is_there) return;
    const auto count = static_cast<float>(width);
    const float mean_gx = row_sums[0] / count;
    float mean_g = 0;
    if constexpr (kLayer) mean_g = row_sums[1] / count;
    ATOLL_UNROLL
    for (int p = 0; p < kTeamPacks; ++p) {
      if (!columns.has(p)) continue;
      float out[V];
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        const float g = now.dy.packs[p][i] * scale_of(w.packs[p][i]);
        const float xhat = (now.x.packs[p][i] - now.mean) * now.rstd;
        // dresidual, or 0
        out[i] = fmaf(now.rstd, fmaf(-xhat, mean_gx, g - mean_g), now.past.packs[p][i]);
      }
      dx.template store<V>(now.begin + columns.column(p), packed<T>(out));
    }
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
  float offset;  // added to the weights

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
      const float w = offset + widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
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
  float offset;

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
        const float w = offset + widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
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
      const float w = offset + widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
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
