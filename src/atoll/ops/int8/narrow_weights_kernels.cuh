#pragma once

// Products of generation: few rows of f32 by a matrix in bf16 or int8, which are as fast as the
// matrix is read; of groups of rows too, as experts have them.

#include "atoll/ops/cuda/int8_bytes.cuh"
#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/row_tiles.cuh"

namespace atl::ops::cuda {

/// y = x W^T [+ bias] of at most M rows of x. A warp for two rows of W, whose lanes take
/// V neighbouring weights each; sums run over a lane's weights, then over the warp as a tree.
/// kGrouped: groups of rows have matrices of their own, stacked, and rows that are left over
/// zeroes; M rows of one group at a time, row tile block_y.
template <typename W, int V, int M, bool kGrouped>
struct FewRows {
  static constexpr const char* kName = "few_rows";
  static constexpr int kMaxThreads = 128;
  static constexpr int kColumns = 2;
  static constexpr int kAtOnce = V < 4 ? V : 4;  // of x
  Global<const float> x;                         // (rows, k)
  Global<const W> w;                             // (n, k)
  Global<const float> scales;                    // (n, ceil(k / kScaleGroup)) of int8
  Global<const float> bias;                      // (n), or empty
  Global<float> y;                               // (rows, n)
  Global<const std::int32_t> offsets;            // (groups + 1), of kGrouped
  int rows;
  std::int64_t n;  // of one matrix
  std::int64_t k;

  ATOLL_DEVICE float factor(std::int64_t row, std::int64_t c) const {
    if constexpr (sizeof(W) != 1) return 1.0F;
    return scales.load(row * num_scales(k) + c / kScaleGroup);
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t first =
        (std::int64_t{block_x()} * (num_threads() / kWarp) + warp()) * kColumns;
    if (first >= n) return;
    RowTile tile = {0, 0, rows};
    if constexpr (kGrouped) tile = find_row_tile<M>(offsets, rows, block_y());
    if (tile.group < 0) return;
    const bool is_left_over = kGrouped && tile.group == static_cast<int>(offsets.size) - 1;
    const std::int64_t end = is_left_over ? 0 : k;
    const std::int64_t matrix = tile.group * n;
    const bool is_last = first + 1 == n;  // which has no neighbour
    float sums[M][kColumns] = {};
    for (std::int64_t c = lane() * V; c < end; c += kWarp * V) {
      Pack<W, V> weights[kColumns];
      float factors[kColumns];
      ATOLL_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const std::int64_t row = matrix + (is_last ? first : first + j);
        weights[j] = w.template load<V>(row * k + c);
        factors[j] = factor(row, c);
      }
      ATOLL_UNROLL
      for (int r = 0; r < M; ++r) {
        if (tile.first + r >= tile.end) continue;
        float parts[kColumns] = {};
        ATOLL_UNROLL
        for (int i = 0; i < V; i += kAtOnce) {
          const auto pack = x.template load<kAtOnce>((tile.first + r) * k + c + i);
          ATOLL_UNROLL
          for (int e = 0; e < kAtOnce; ++e) {
            ATOLL_UNROLL
            for (int j = 0; j < kColumns; ++j) {
              parts[j] = fmaf(pack[e], widened(weights[j][i + e]), parts[j]);
            }
          }
        }
        ATOLL_UNROLL
        for (int j = 0; j < kColumns; ++j) sums[r][j] = fmaf(parts[j], factors[j], sums[r][j]);
      }
    }
    ATOLL_UNROLL
    for (int r = 0; r < M; ++r) {
      if (tile.first + r >= tile.end) continue;
      ATOLL_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const float total = warp_sum(sums[r][j]);
        if (lane() != 0 || (is_last && j > 0)) continue;
        y.store((tile.first + r) * n + first + j,
                bias.size == 0 ? total : total + bias.load(first + j));
      }
    }
  }
};

/// The same for 2 to 8 rows of x, of whole packs of four, and at least kColumns rows of W. A warp
/// for 4 rows of W, or 8 of int8, as x is read again for each warp: lanes take four neighbouring
/// weights each, so that a warp's loads of x are whole lines, and two steps of weights are on their
/// way while others are multiplied.
template <typename W, bool kGrouped>
struct EightRows {
  static constexpr const char* kName = "few_rows";
  static constexpr int kMaxThreads = 128;
  static constexpr int kRows = 8;
  static constexpr int kColumns = sizeof(W) == 1 ? 8 : 4;
  static constexpr int kEach = 4;  // weights of a lane
  static constexpr int kStep = kWarp * kEach;
  static constexpr int kGroups = kStep / kScaleGroup;  // of int8, in a step
  static constexpr int kSums = kRows * kColumns;
  static constexpr int kInWord = 4 / sizeof(W);
  static constexpr std::int64_t kMostWeights = std::int64_t{1} << 27;  // of a row
  Global<const float> x;                                               // (rows, k)
  Global<const W> w;                                                   // (n, k)
  Global<const float> scales;          // (n, ceil(k / kScaleGroup)) of int8
  Global<const float> bias;            // (n), or empty
  Global<float> y;                     // (rows, n)
  Global<const std::int32_t> offsets;  // (groups + 1), of kGrouped
  int rows;
  std::int64_t n;  // of one matrix
  std::int64_t k;

  /// A step's weights of a lane as words, and in lane kGroups j + g the factor of group g of row j.
  struct Weights {
    Pack<std::uint32_t, sizeof(W)> of[kColumns];
    float factor;
  };
  /// `float_2_23` is 2^23, which the compiler must not know: it would load it for each weight.
  ATOLL_DEVICE static float weight_of(const Pack<std::uint32_t, sizeof(W)>& words, int e,
                                      std::uint32_t float_2_23) {
    if constexpr (sizeof(W) == 1) {
      // 2^23 + 128 + the weight, without an instruction that converts: there are few of these.
      const std::uint32_t bytes = words[0] ^ 0x80808080U;
      return std::bit_cast<float>(permute_bytes(bytes, float_2_23, 0x7440 + e)) - 8388736.0F;
    } else {
      const std::uint32_t word = words[e / 2];
      return std::bit_cast<float>(e % 2 == 0 ? word << 16 : word & 0xffff0000U);
    }
  }
  /// kColumns rows of fewer than kMostWeights weights, and their factors.
  struct Rows {
    Global<const std::uint32_t> words;
    Global<const float> factors;
    int words_of_row, factors_of_row;
  };
  ATOLL_DEVICE Rows rows_from(std::int64_t row) const {
    const std::int64_t factors = sizeof(W) == 1 ? num_scales(k) : 0;
    return {{reinterpret_cast<const std::uint32_t*>(w.data + row * k), kColumns * k / kInWord},
            {scales.data + row * factors, kColumns * factors},
            static_cast<int>(k / kInWord),
            static_cast<int>(factors)};
  }
  ATOLL_DEVICE static void load(Weights& weights, const Rows& from, int begin, int end) {
    constexpr int kWords = kEach / kInWord;
    const int at = begin / kInWord + lane() * kWords;
    const bool is_there = begin + lane() * kEach < end;
    ATOLL_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      weights.of[j] = {};
      if (is_there) weights.of[j] = from.words.template load<kWords>(j * from.words_of_row + at);
    }
    if constexpr (sizeof(W) == 1) {
      const int j = lane() / kGroups % kColumns, group = lane() % kGroups;
      weights.factor = 0;
      if (begin + group * kScaleGroup < end) {
        weights.factor = from.factors.load(j * from.factors_of_row + begin / kScaleGroup + group);
      }
    }
  }
  ATOLL_DEVICE void multiply(float (&sums)[kSums], const Weights& weights, const RowTile& tile,
                             int begin, int end) const {
    const int c = begin + lane() * kEach, width = static_cast<int>(k);
    // Rows that are not there are the last once more; no sum of theirs is written.
    Pack<float, kEach> rows_of_x[kRows];
    const int last = tile.end - 1 - tile.first;
    const std::uint32_t float_2_23 = 0x4b000000U | (rows < 0 ? 1U : 0U);
    ATOLL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int row = r < last ? r : last;
      rows_of_x[r] = x.template load<kEach>(tile.first * k + (row * width + (c < end ? c : 0)));
    }
    ATOLL_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      float factor = 1;
      if constexpr (sizeof(W) == 1) {
        factor = shuffle(weights.factor, kGroups * j + lane() * kEach / kScaleGroup);
      }
      ATOLL_UNROLL
      for (int e = 0; e < kEach; ++e) {
        float weight = weight_of(weights.of[j], e, float_2_23);
        if constexpr (sizeof(W) == 1) weight *= factor;
        ATOLL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[r * kColumns + j] = fmaf(rows_of_x[r][e], weight, sums[r * kColumns + j]);
        }
      }
    }
  }
  /// Of 32 sums of each lane, number l of all lanes in lane l: half as many are left at each step.
  ATOLL_DEVICE static float sum_of_lane(float (&sums)[kSums], int first) {
    ATOLL_UNROLL
    for (int step = 0; step < 5; ++step) {
      const int half = (kWarp / 2) >> step;
      const bool is_upper = (lane() & half) != 0;
      ATOLL_UNROLL
      for (int i = 0; i < kWarp / 2; ++i) {
        if (i >= half) break;
        const float lower = sums[first + i], upper = sums[first + i + half];
        const float other = shuffle_xor(is_upper ? lower : upper, half);
        sums[first + i] = (is_upper ? upper : lower) + other;
      }
    }
    return sums[first];
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t own =
        (std::int64_t{block_x()} * (num_threads() / kWarp) + warp()) * kColumns;
    if (own >= n) return;
    // The last warp begins where kColumns rows are left, and writes those that are its own.
    const std::int64_t first = own + kColumns <= n ? own : n - kColumns;
    RowTile tile = {0, 0, rows};
    if constexpr (kGrouped) tile = find_row_tile<kRows>(offsets, rows, block_y());
    if (tile.group < 0) return;
    const bool is_left_over = kGrouped && tile.group == static_cast<int>(offsets.size) - 1;
    const int end = is_left_over ? 0 : static_cast<int>(k);
    const Rows from = rows_from(tile.group * n + first);
    float sums[kSums] = {};
    Weights one, two;
    load(one, from, 0, end);
    load(two, from, kStep, end);
    ATOLL_NO_UNROLL
    for (int at = 0; at < end; at += kStep) {
      multiply(sums, one, tile, at, end);
      one = two;
      load(two, from, at + 2 * kStep, end);
    }
    ATOLL_UNROLL
    for (int i = 0; i < kSums; i += kWarp) {
      const float sum = sum_of_lane(sums, i);
      const int r = (i + lane()) / kColumns, j = lane() % kColumns;
      if (tile.first + r >= tile.end || first + j < own) continue;
      y.store((tile.first + r) * n + first + j, bias.size == 0 ? sum : sum + bias.load(first + j));
    }
  }
};

/// y[row] = the row of an Int8Matrix in f32: that of tokens[row], or where there are none row
/// `first` + row. A warp for each row, whose lanes take V neighbours each.
template <int V>
struct Int8Rows {
  static constexpr const char* kName = "int8_rows";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> tokens;  // (rows), or empty
  Global<const std::uint8_t> values;  // (N, width)
  Global<const float> scales;         // (N, ceil(width / kScaleGroup))
  Global<float> y;                    // (rows, width)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t first;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t index = tokens.size == 0 ? first + row : tokens.load(row);
    const std::int64_t groups = num_scales(width);
    for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
      const auto bytes = values.template load<V>(index * width + c);
      const float scale = scales.load(index * groups + c / kScaleGroup);
      Pack<float, V> wide;
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) wide[i] = widened(bytes[i]) * scale;
      y.template store<V>(row * width + c, wide);
    }
  }
};

/// x = q s of each group of a row, as int8_rounding() of ops/int8/int8_arithmetic.h says. A warp
/// for each group, of which a lane has the elements l and l + 32.
struct RoundGroups {
  static constexpr const char* kName = "round_groups";
  static constexpr int kMaxThreads = 128;
  static constexpr float kSmallest = 127 * 0x1p-126F;  // the largest of a group below it are zeros
  Global<const float> x;                               // (rows, k)
  Global<std::uint8_t> values;                         // (rows, k)
  Global<float> scales;                                // (rows, groups)
  std::int64_t k;
  std::int64_t groups;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t group = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (group >= scales.size) return;
    const std::int64_t row = group / groups;
    const std::int64_t begin = group % groups * kScaleGroup;
    float own[2] = {};
    bool is_finite = true;
    float largest = 0;
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t c = begin + lane() + i * kWarp;
      if (c >= k) continue;
      own[i] = x.load(row * k + c);
      const float size = own[i] < 0 ? -own[i] : own[i];
      is_finite = is_finite && size <= 0x1.fffffep127F;
      largest = size > largest ? size : largest;
    }
    largest = warp_max(largest);
    const bool is_bad = any_lane(!is_finite);
    const bool is_rounded = !is_bad && largest >= kSmallest;
    const float factor = is_rounded ? 127.0F / largest : 0.0F;
    if (lane() == 0) {
      const float nan = std::bit_cast<float>(0x7fc00000);
      scales.store(group, is_bad ? nan : is_rounded ? largest / 127.0F : 0.0F);
    }
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t c = begin + lane() + i * kWarp;
      if (c >= k) continue;
      const int q = is_rounded ? static_cast<int>(nearbyintf(own[i] * factor)) : 0;
      values.store(row * k + c, static_cast<std::uint8_t>(q));
    }
  }
};

/// y = round(x) W^T [+ bias], of activations that RoundGroups has rounded: a group's products are
/// summed in integers, groups in f32 one after the other, which are the bits of
/// ref::matmul_rounded. A warp for each row of W and kRows rows of x, row tile block_y, whose lanes
/// take V = 16 neighbours each; V = 1: two of one group. Groups of rows as in FewRows; "group"
/// below is one of neighbours that share a factor.
template <int V>
struct RoundedRows {
  static constexpr const char* kName = "rounded_rows";
  static constexpr int kMaxThreads = 128;
  static constexpr int kRows = 8;
  static constexpr int kLanes = V == 1 ? kWarp : kScaleGroup / V;  // of a group
  static constexpr int kGroups = kWarp / kLanes;                   // at once
  Global<const std::uint8_t> x;                                    // (rows, k)
  Global<const float> x_scales;                                    // (rows, groups)
  Global<const std::uint8_t> w;                                    // (n, k)
  Global<const float> w_scales;                                    // (n, groups)
  Global<const float> bias;                                        // (n), or empty
  Global<float> y;                                                 // (rows, n)
  Global<const std::int32_t> offsets;                              // of rows, or empty
  int rows;
  std::int64_t n;  // of one matrix
  std::int64_t k;
  std::int64_t groups;

  // This lane's part of the product of a group; it begins at column c.
  ATOLL_DEVICE int part(std::int64_t row, std::int64_t column, std::int64_t c) const {
    int sum = 0;
    ATOLL_UNROLL
    for (int half = 0; half < (V == 1 ? 2 : 1); ++half) {
      const std::int64_t at = c + half * kWarp;
      if (at >= k) continue;
      const auto left = x.template load<V>(row * k + at);
      const auto right = w.template load<V>(column * k + at);
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) sum += int8_of(left[i]) * int8_of(right[i]);
    }
    return sum;
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t column = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (column >= n) return;
    const RowTile tile = find_row_tile<kRows>(offsets, rows, block_y());
    if (tile.group < 0) return;
    const bool is_left_over = tile.group > 0 && tile.group == static_cast<int>(offsets.size) - 1;
    const std::int64_t end = is_left_over ? 0 : groups;
    const std::int64_t first = tile.first, row_of_w = tile.group * n + column;
    float sums[kRows] = {};
    for (std::int64_t group = 0; group < end; group += kGroups) {
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= tile.end) continue;
        int dot = part(first + r, row_of_w, group * kScaleGroup + lane() * V);
        for (int mask = kLanes / 2; mask > 0; mask /= 2) dot += shuffle_xor(dot, mask);
        for (int g = 0; g < kGroups; ++g) {
          const int whole = shuffle(dot, g * kLanes);
          if (group + g >= groups) continue;
          const float scaled =
              static_cast<float>(whole) * x_scales.load((first + r) * groups + group + g);
          sums[r] = fmaf(scaled, w_scales.load(row_of_w * groups + group + g), sums[r]);
        }
      }
    }
    ATOLL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (lane() != 0 || first + r >= tile.end) continue;
      y.store((first + r) * n + column, sums[r] + (bias.size == 0 ? 0.0F : bias.load(column)));
    }
  }
};

template <typename W, int V, bool kGrouped>
using FewRowsKernels = KernelList<FewRows<W, 1, 1, kGrouped>, FewRows<W, 1, 8, kGrouped>,
                                  FewRows<W, V, 1, kGrouped>, EightRows<W, kGrouped>>;

using NarrowWeightsKernels =
    Joined<FewRowsKernels<Bf16, 8, false>, FewRowsKernels<Bf16, 8, true>,
           FewRowsKernels<std::uint8_t, 16, false>, FewRowsKernels<std::uint8_t, 16, true>,
           KernelList<Int8Rows<1>, Int8Rows<4>, RoundGroups, RoundedRows<1>, RoundedRows<16>>>;

}  // namespace atl::ops::cuda
