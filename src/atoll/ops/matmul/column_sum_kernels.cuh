#pragma once

// Sums over rows, in two kernels: partial sums over fixed blocks of rows, then those of all
// blocks. How rows are cut hangs on the shape alone, so every GPU gives the same bits.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/row_team.cuh"

namespace atl::ops::cuda {

/// partials[block][c] = sum of dy[row][c] over the block's rows (kPlain), or of dy xhat with xhat =
/// (x - mean) rstd (kLayer: then both sums, that of dy width further on) or x rstd (kRms).
enum class ColumnTerm { kPlain, kRms, kLayer };

/// A block of threads takes 32 V columns; its warps take its rows in turn.
template <typename T, int V, ColumnTerm kTerm>
struct ColumnPartials {
  static constexpr const char* kName = kTerm == ColumnTerm::kPlain ? "column_partials"
                                       : kTerm == ColumnTerm::kRms ? "rms_norm_weight_partials"
                                                                   : "layer_norm_weight_partials";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAtOnce = 4;
  static constexpr int kSums = kTerm == ColumnTerm::kLayer ? 2 : 1;
  Global<const T> dy;  // (rows, width)
  Global<const T> x;   // (rows, width); as what follows, not for kPlain
  Global<const float> mean;
  Global<const float> rstd;
  Global<float> partials;  // (row blocks, kSums, width)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_block;

  /// Shared memory of a block.
  static constexpr int shared_bytes() {
    return column_box_size<V>(kMaxThreads) * static_cast<int>(sizeof(float));
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t column = (std::int64_t{block_x()} * kWarp + lane()) * V;
    const std::int64_t first = block_y() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    float sums[kSums][V] = {};
    if (column < width) {
      const int warps = num_threads() / kWarp;
      for (std::int64_t row = first + warp(); row < last; row += kAtOnce * warps) {
        // Several rows are under way before the first is added.
        Held<T, V> g[kAtOnce] = {}, xs[kAtOnce] = {};
        ATOLL_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          const std::int64_t at = (row + k * warps) * width + column;
          if (row + k * warps >= last) continue;
          g[k] = Held<T, V>::of(dy.template load<V>(at));
          if constexpr (kTerm != ColumnTerm::kPlain) {
            xs[k] = Held<T, V>::of(x.template load<V>(at));
          }
        }
        ATOLL_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          if (row + k * warps < last) add(sums, row + k * warps, g[k], xs[k]);
        }
      }
    }
    const Shared<float> box = shared_memory<float>(0, column_box_size<V>(num_threads()));
    const std::int64_t left = std::int64_t{block_x()} * kWarp * V;
    const std::int64_t columns = width - left < kWarp * V ? width - left : kWarp * V;
    ATOLL_UNROLL
    for (int s = 0; s < kSums; ++s) {
      if (s > 0) sync_block();
      store_columns<V>(sums[s], columns, kWarp, box, partials,
                       (std::int64_t{block_y()} * kSums + s) * width + left);
    }
  }

  ATOLL_DEVICE void add(float (&sums)[kSums][V], std::int64_t row, const Held<T, V>& g,
                        const Held<T, V>& xs) const {
    if constexpr (kTerm == ColumnTerm::kPlain) {
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) sums[0][i] += g[i];
    } else {
      const float m = kTerm == ColumnTerm::kLayer ? mean.load(row) : 0.0F;
      const float r = rstd.load(row);
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) {
        sums[0][i] += g[i] * ((xs[i] - m) * r);
        if constexpr (kTerm == ColumnTerm::kLayer) sums[1][i] += g[i];
      }
    }
  }
};

/// total[c] (+)= sum over blocks of partials[block * stride + c]. A block of threads takes 32
/// columns: each warp adds up an eighth of the blocks, in their order, and then these are added.
template <bool kAdds>
struct AddPartials {
  static constexpr const char* kName = kAdds ? "add_partials" : "sum_partials";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAtOnce = 4;
  Global<const float> partials;
  Global<float> total;
  std::int64_t blocks;
  std::int64_t stride;

  static constexpr int shared_bytes() { return kMaxThreads * static_cast<int>(sizeof(float)); }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t c = std::int64_t{block_x()} * kWarp + lane();
    const int warps = num_threads() / kWarp;
    const std::int64_t each = (blocks + warps - 1) / warps;
    const std::int64_t first = warp() * each;
    const std::int64_t last = first + each < blocks ? first + each : blocks;
    float sum = 0;
    for (std::int64_t b = first; c < total.size && b < last; b += kAtOnce) {
      float next[kAtOnce];
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        next[k] = b + k < last ? partials.load((b + k) * stride + c) : 0.0F;
      }
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) sum += next[k];
    }
    const Shared<float> box = shared_memory<float>(0, num_threads());
    box.store(thread(), sum);
    sync_block();
    if (warp() != 0 || c >= total.size) return;
    float all = 0;
    for (int w = 0; w < warps; ++w) all += box.load(w * kWarp + lane());
    total.store(c, kAdds ? total.load(c) + all : all);
  }
};

/// partials[block][0 or 1][d] = sum of dy xhat over the block's rows and their query (0) or key (1)
/// heads. blockIdx.x says which; the warps take (row, head) pairs in turn.
template <typename T>
struct QkWeightPartials {
  static constexpr const char* kName = "qk_norm_weight_partials";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;
  Global<const float> rstd;
  Global<const T> dy;
  Global<float> partials;  // (row blocks, 2, head_dim)
  std::int64_t rows;
  std::int64_t rows_per_block;
  int query_heads;
  int kv_heads;
  int head_dim;

  ATOLL_DEVICE void operator()() const {
    const int heads = query_heads + 2 * kv_heads;
    const int normed = query_heads + kv_heads;
    const int own = block_x() == 0 ? query_heads : kv_heads;
    const int offset = block_x() == 0 ? 0 : query_heads;
    const std::int64_t first = block_y() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    const int warps = num_threads() / kWarp;
    const Shared<float> box = shared_memory<float>(0, num_threads());
    for (int d0 = 0; d0 < head_dim; d0 += kWarp) {
      const int d = d0 + lane();
      float sum = 0;
      for (std::int64_t pair = warp(); d < head_dim && pair < (last - first) * own; pair += warps) {
        const std::int64_t row = first + pair / own;
        const std::int64_t head = offset + pair % own;
        const std::int64_t at = (row * heads + head) * head_dim + d;
        sum += widened(dy.load(at)) * (widened(x.load(at)) * rstd.load(row * normed + head));
      }
      box.store(thread(), sum);
      sync_block();
      if (warp() == 0 && d < head_dim) {
        float total = 0;
        for (int w = 0; w < warps; ++w) total += box.load(w * kWarp + lane());
        partials.store((std::int64_t{block_y()} * 2 + block_x()) * head_dim + d, total);
      }
      sync_block();
    }
  }
};

template <typename T, int V>
using ColumnKernelsOf =
    KernelList<ColumnPartials<T, V, ColumnTerm::kPlain>, ColumnPartials<T, V, ColumnTerm::kRms>,
               ColumnPartials<T, V, ColumnTerm::kLayer>>;
using ColumnKernels = Joined<ColumnKernelsOf<float, 1>, ColumnKernelsOf<float, 4>,
                             ColumnKernelsOf<Bf16, 1>, ColumnKernelsOf<Bf16, 8>,
                             KernelList<AddPartials<false>, AddPartials<true>,
                                        QkWeightPartials<float>, QkWeightPartials<Bf16>>>;

}  // namespace atl::ops::cuda
