#pragma once

// Rows for experts. How many choices each expert has is known on the GPU alone: choices are counted
// in blocks of kChoices, counts are added up in the order of blocks, and each choice then knows its
// row. A thread stands for an expert and goes through a block's choices in their order, so rows lie
// as on a CPU and nothing is added atomically.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// A block's part of all choices, in shared memory.
struct ChoicePart {
  static constexpr int kChoices = 512;
  static constexpr int kAtOnce = 8;
  std::int64_t begin;
  int count;
  Shared<std::int32_t> chosen;  // -1 behind the last

  /// kAtOnce choices from `i` on, a multiple of it.
  ATOLL_DEVICE void load_some(std::int32_t (&some)[kAtOnce], int i) const {
    ATOLL_UNROLL
    for (int half = 0; half < kAtOnce / 4; ++half) {
      const auto pack = chosen.load<4>(i + 4 * half);
      ATOLL_UNROLL
      for (int j = 0; j < 4; ++j) some[4 * half + j] = pack[j];
    }
  }
  /// For all threads of a block together.
  ATOLL_DEVICE static ChoicePart load(const Global<const std::int32_t>& experts) {
    const std::int64_t begin = std::int64_t{block_x()} * kChoices;
    const std::int64_t left = experts.size - begin;
    const ChoicePart part = {begin, static_cast<int>(left < kChoices ? left : kChoices),
                             shared_memory<std::int32_t>(0, kChoices)};
    for (int i = thread(); i < kChoices; i += num_threads()) {
      part.chosen.store(i, i < part.count ? experts.load(begin + i) : -1);
    }
    sync_block();
    return part;
  }
};

/// counts[block][e] = how many of the block's choices are expert e.
struct CountChoices {
  static constexpr const char* kName = "count_choices";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> experts;  // (choices)
  Global<std::int32_t> counts;         // (blocks, num_experts)
  int num_experts;

  static constexpr int shared_bytes() { return ChoicePart::kChoices * 4; }

  ATOLL_DEVICE void operator()() const {
    const ChoicePart part = ChoicePart::load(experts);
    for (int e = thread(); e < num_experts; e += num_threads()) {
      std::int32_t found = 0;
      for (int i = 0; i < part.count; i += ChoicePart::kAtOnce) {
        std::int32_t some[ChoicePart::kAtOnce];
        part.load_some(some, i);
        ATOLL_UNROLL
        for (int j = 0; j < ChoicePart::kAtOnce; ++j) found += some[j] == e ? 1 : 0;
      }
      counts.store(std::int64_t{block_x()} * num_experts + e, found);
    }
  }
};

/// counts[block][e] become those of all earlier blocks, totals[e] those of all. A warp for each
/// expert.
struct ScanCounts {
  static constexpr const char* kName = "scan_counts";
  static constexpr int kMaxThreads = 128;
  Global<std::int32_t> counts;  // (rows, num_experts)
  Global<std::int32_t> totals;  // (num_experts)
  int rows;
  int num_experts;

  ATOLL_DEVICE void operator()() const {
    const int e = block_x() * (num_threads() / kWarp) + warp();
    if (e >= num_experts) return;
    std::int32_t before = 0;
    for (std::int64_t begin = 0; begin < rows; begin += kWarp) {
      const std::int64_t row = begin + lane();
      const std::int64_t at = row * num_experts + e;
      const std::int32_t own = row < rows ? counts.load(at) : 0;
      std::int32_t sum = own;  // of the lanes up to this one
      for (int d = 1; d < kWarp; d *= 2) {
        const int below = (lane() + kWarp - d) % kWarp;
        const std::int32_t other = shuffle(sum, below);
        if (lane() >= d) sum += other;
      }
      if (row < rows) counts.store(at, before + sum - own);
      before += shuffle(sum, kWarp - 1);
    }
    if (lane() == 0) totals.store(e, before);
  }
};

/// places, sources and offsets of ops::assign_rows, from what CountChoices and ScanCounts found.
struct PlaceRows {
  static constexpr const char* kName = "place_rows";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> experts;  // (choices)
  Global<const std::int32_t> before;   // (blocks, num_experts)
  Global<const std::int32_t> totals;   // (num_experts)
  Global<std::int32_t> places;         // (choices)
  Global<std::int32_t> sources;        // (choices)
  Global<std::int32_t> offsets;        // (num_experts + 1)
  int num_experts;
  std::int32_t capacity;

  /// Shared memory of a block, by default for as many experts as large models have.
  static constexpr int shared_bytes(int num_experts = 128) {
    return (ChoicePart::kChoices + padded(num_experts)) * 4;
  }
  ATOLL_HOST_AND_DEVICE static constexpr int padded(int num_experts) {
    return (num_experts + 3) / 4 * 4;
  }

  ATOLL_DEVICE void operator()() const {
    // Rows that each expert takes.
    const Shared<std::int32_t> taken =
        shared_memory<std::int32_t>(ChoicePart::kChoices * 4, padded(num_experts));
    for (int e = thread(); e < padded(num_experts); e += num_threads()) {
      const std::int32_t total = e < num_experts ? totals.load(e) : 0;
      taken.store(e, total < capacity ? total : capacity);
    }
    const ChoicePart part = ChoicePart::load(experts);
    for (int e = thread(); e < num_experts; e += num_threads()) {
      const std::int32_t first = taken_before(taken, e);
      if (block_x() == 0) offsets.store(e, first);
      place(part, e, first);
    }
    const std::int32_t used = taken_before(taken, num_experts);
    if (block_x() == 0 && thread() == 0) offsets.store(num_experts, used);
    for (int i = thread(); i < part.count; i += num_threads()) {
      if (part.begin + i >= used) sources.store(part.begin + i, -1);
    }
  }

 private:
  ATOLL_DEVICE std::int32_t taken_before(const Shared<std::int32_t>& taken, int e) const {
    std::int32_t sum = 0;
    for (int i = 0; i < padded(num_experts); i += 4) {
      const auto some = taken.load<4>(i);
      ATOLL_UNROLL
      for (int j = 0; j < 4; ++j) sum += i + j < e ? some[j] : 0;
    }
    return sum;
  }
  // The block's choices of expert `e`, whose rows begin at `first`.
  ATOLL_DEVICE void place(const ChoicePart& part, int e, std::int32_t first) const {
    std::int32_t number = before.load(std::int64_t{block_x()} * num_experts + e);
    for (int i = 0; i < part.count; i += ChoicePart::kAtOnce) {
      std::int32_t some[ChoicePart::kAtOnce];
      part.load_some(some, i);
      ATOLL_UNROLL
      for (int j = 0; j < ChoicePart::kAtOnce; ++j) {
        if (some[j] != e) continue;
        const std::int32_t row = number < capacity ? first + number : -1;
        const std::int64_t choice = part.begin + i + j;
        ++number;
        places.store(choice, row);
        if (row >= 0) sources.store(row, static_cast<std::int32_t>(choice));
      }
    }
  }
};

/// rows[i] = x[token of row i], or 0 in rows left over. A warp for each row.
template <typename T, int V>
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAtOnce = 4;    // packs of a lane that are loaded before any is stored
  Global<const T> x;                   // (tokens, width)
  Global<const std::int32_t> sources;  // (rows)
  Global<T> rows;                      // (rows, width)
  std::int64_t width;
  std::int32_t k;  // choices of a token

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= sources.size) return;
    const std::int32_t source = sources.load(row);
    const std::int64_t from = source < 0 ? 0 : source / k * width, to = row * width, end = width;
    for (std::int64_t first = lane() * V; first < end; first += kAtOnce * kWarp * V) {
      Pack<T, V> packs[kAtOnce];
      ATOLL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t c = first + i * (kWarp * V);
        for (int v = 0; v < V; ++v) packs[i][v] = narrowed<T>(0.0F);
        if (source >= 0 && c < end) packs[i] = x.template load<V>(from + c);
      }
      ATOLL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t c = first + i * (kWarp * V);
        if (c < end) rows.template store<V>(to + c, packs[i]);
      }
    }
  }
};

/// y[t] = sum over j of weights[t, j] rows[places[t, j]], in the order of j.
template <typename T, int V>
struct CombineRows {
  static constexpr const char* kName = "combine_rows";
  static constexpr int kMaxThreads = 256;
  Global<const T> rows;               // (rows, width)
  Global<const std::int32_t> places;  // (tokens, k)
  Global<const float> weights;        // (tokens, k), or empty: all are 1
  Global<T> y;                        // (tokens, width)
  std::int64_t width;
  std::int64_t k;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const std::int64_t token = i / width, c = i % width;
    float sum[V] = {};
    for (std::int64_t choice = token * k; choice < (token + 1) * k; ++choice) {
      const std::int64_t place = places.load(choice);
      if (place < 0) continue;
      const float weight = weights.size > 0 ? weights.load(choice) : 1.0F;
      const auto row = rows.template load<V>(place * width + c);
      for (int v = 0; v < V; ++v) sum[v] += weight * widened(row[v]);
    }
    Pack<T, V> out;
    for (int v = 0; v < V; ++v) out[v] = narrowed<T>(sum[v]);
    y.template store<V>(i, out);
  }
};

/// dweights of choices with a row, and h and d times their row's weight. A warp for each row.
template <typename T, int V>
struct WeighRows {
  static constexpr const char* kName = "weigh_rows";
  static constexpr int kMaxThreads = 128;
  Global<const float> weights;         // (choices)
  Global<const std::int32_t> sources;  // (rows)
  Global<const T> dh;                  // (rows, inner)
  Global<T> h;                         // (rows, inner)
  Global<T> d;                         // (rows, outer)
  Global<float> dweights;              // (choices)
  std::int64_t inner;
  std::int64_t outer;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= sources.size) return;
    const std::int32_t source = sources.load(row);
    if (source < 0) return;  // for the whole warp alike
    const float weight = weights.load(source);
    float sum = 0;
    for (std::int64_t f = lane() * V; f < inner; f += kWarp * V) {
      const auto left = dh.template load<V>(row * inner + f);
      auto right = h.template load<V>(row * inner + f);
      for (int v = 0; v < V; ++v) {
        sum += widened(left[v]) * widened(right[v]);
        right[v] = narrowed<T>(weight * widened(right[v]));
      }
      h.template store<V>(row * inner + f, right);
    }
    sum = warp_sum(sum);
    if (lane() == 0) dweights.store(source, sum);
    for (std::int64_t c = lane() * V; c < outer; c += kWarp * V) {
      auto pack = d.template load<V>(row * outer + c);
      for (int v = 0; v < V; ++v) pack[v] = narrowed<T>(weight * widened(pack[v]));
      d.template store<V>(row * outer + c, pack);
    }
  }
};

template <typename T, int V>
using RowKernelsOf = KernelList<GatherRows<T, V>, CombineRows<T, V>, WeighRows<T, V>>;
using ExpertRowsKernels =
    Joined<KernelList<CountChoices, ScanCounts, PlaceRows>, RowKernelsOf<float, 1>,
           RowKernelsOf<float, 4>, RowKernelsOf<Bf16, 1>, RowKernelsOf<Bf16, 8>>;

}  // namespace atl::ops::cuda
