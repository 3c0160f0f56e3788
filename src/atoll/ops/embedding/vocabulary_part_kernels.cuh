#pragma once

// What a rank does that has some rows of the embedding and of the head: see
// ops/embedding/vocabulary_part.h. Statistics of a softmax are stored in double, as ranks of CPUs
// exchange them, and computed in f32, as the cross-entropy of a whole vocabulary is.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/per_step.cuh"

namespace atl::ops::cuda {

/// local = token - first for a token of the part, else 0.
struct LocalTokens {
  static constexpr const char* kName = "local_tokens";
  static constexpr int kMaxThreads = 256;
  Global<const std::int32_t> tokens;
  Global<std::int32_t> local;
  std::int32_t first, size;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= local.size) return;
    const std::int32_t at = tokens.load(i) - first;
    local.store(i, at >= 0 && at < size ? at : 0);
  }
};

/// to = the position of row first_row + i: its own where there are positions, else its place.
struct LocalPositions {
  static constexpr const char* kName = "local_positions";
  static constexpr int kMaxThreads = 256;
  Global<const std::int32_t> positions;  // or empty
  Global<std::int32_t> to;
  std::int64_t rows_per_sequence;
  std::int64_t first_row;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= to.size) return;
    const std::int64_t row = first_row + i;
    to.store(i, positions.size == 0 ? static_cast<std::int32_t>(row % rows_per_sequence)
                                    : positions.load(row));
  }
};

/// Zeroes in the rows whose token is of another part, V elements at a time.
template <typename T, int V>
struct ClearForeignRows {
  static constexpr const char* kName = "clear_foreign_rows";
  static constexpr int kMaxThreads = 256;
  Global<const std::int32_t> tokens;  // (rows)
  Global<T> y;                        // (rows, width)
  std::int64_t width;
  std::int32_t first, size;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = V * (std::int64_t{block_x()} * num_threads() + thread());
    if (i >= y.size) return;
    const std::int32_t at = tokens.load(i / width) - first;
    if (at >= 0 && at < size) return;
    Pack<T, V> zero;
    for (int k = 0; k < V; ++k) zero[k] = narrowed<T>(0.0F);
    y.template store<V>(i, zero);
  }
};

constexpr int kSoftmaxStatistics = 3;  // kNumSoftmaxStatistics

/// Logits of a row become exp(logit - m); their largest m, the sum and the target's logit become
/// the row's statistics. A block for each row; one without a target is left as it is.
template <int V>
struct SoftmaxPart {
  static constexpr const char* kName = "softmax_part";
  static constexpr int kMaxThreads = 512;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static constexpr std::int32_t kIgnore = -1;  // kIgnoreTarget
  Global<float> logits;                        // (rows, size)
  Global<const std::int32_t> targets;          // (rows)
  Global<double> statistics;                   // (rows, 3)
  std::int64_t size;
  std::int32_t first;

  static constexpr int shared_bytes() { return 2 * kWarps * static_cast<int>(sizeof(float)); }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t begin = block_x() * size;
    const std::int32_t target = targets.load(block_x());
    const std::int64_t own = target - first;
    const bool is_ignored = target == kIgnore, is_own = !is_ignored && own >= 0 && own < size;
    if (thread() == 0) {
      const float logit = is_own ? logits.load(begin + own) : 0.0F;
      statistics.store(block_x() * kSoftmaxStatistics + 2, static_cast<double>(logit));
    }
    if (is_ignored) {  // for the whole block alike
      if (thread() < 2) statistics.store(block_x() * kSoftmaxStatistics + thread(), 0.0);
      return;
    }
    const float lowest = -3.0e38F;
    float max = lowest;
    for (std::int64_t v = thread() * V; v < size; v += num_threads() * V) {
      const auto pack = logits.template load<V>(begin + v);
      for (int i = 0; i < V; ++i) max = pack[i] > max ? pack[i] : max;
    }
    const Shared<float> tops = shared_memory<float>(0, kWarps);
    const Shared<float> totals =
        shared_memory<float>(kWarps * static_cast<int>(sizeof(float)), kWarps);
    const float warp_top = warp_max(max);
    if (lane() == 0) tops.store(warp(), warp_top);
    sync_block();  // the target's logit has been read, too
    float top = lowest;
    for (int w = 0; w < num_threads() / kWarp; ++w) top = tops.load(w) > top ? tops.load(w) : top;
    float sum = 0;
    for (std::int64_t v = thread() * V; v < size; v += num_threads() * V) {
      auto pack = logits.template load<V>(begin + v);
      for (int i = 0; i < V; ++i) {
        pack[i] = exp_falling(pack[i] - top);
        sum += pack[i];
      }
      logits.template store<V>(begin + v, pack);
    }
    const float warp_total = warp_sum(sum);
    if (lane() == 0) totals.store(warp(), warp_total);
    sync_block();
    if (thread() != 0) return;
    float total = 0;
    for (int w = 0; w < num_threads() / kWarp; ++w) total += totals.load(w);
    statistics.store(block_x() * kSoftmaxStatistics, static_cast<double>(top));
    statistics.store(block_x() * kSoftmaxStatistics + 1, static_cast<double>(total));
  }
};

/// The loss of each row from the statistics of all parts, added in their order; exponentials become
/// grad_scale d(loss)/d(logit) when `with_gradient`. A block for each row.
template <int V>
struct CrossEntropyPart {
  static constexpr const char* kName = "cross_entropy_part";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int32_t kIgnore = -1;  // kIgnoreTarget
  Global<const double> statistics;             // (parts, rows, 3)
  Global<const std::int32_t> targets;          // (rows)
  Global<float> exps;                          // (rows, size)
  Global<float> loss;                          // (rows)
  std::int64_t size, rows;
  std::int32_t first;
  std::int32_t num_parts, index;
  PerStep<float> grad_scale;
  bool with_gradient;

  ATOLL_DEVICE float number(std::int64_t part, int which) const {
    const std::int64_t at = (part * rows + block_x()) * kSoftmaxStatistics + which;
    return static_cast<float>(statistics.load(at));
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t begin = block_x() * size;
    const std::int32_t target = targets.load(block_x());
    if (target == kIgnore) {  // for the whole block alike
      if (thread() == 0) loss.store(block_x(), 0.0F);
      scale_row(begin, 0.0F, 0.0F, true, -1);
      return;
    }
    float max = number(0, 0);
    for (int p = 1; p < num_parts; ++p) {
      const float other = number(p, 0);
      max = other > max ? other : max;
    }
    float sum = 0, target_logit = 0, own = 0;
    for (int p = 0; p < num_parts; ++p) {
      const float factor = exp_falling(number(p, 0) - max);
      sum += number(p, 1) * factor;
      target_logit += number(p, 2);
      own = p == index ? factor : own;
    }
    if (thread() == 0) loss.store(block_x(), log_f32(sum) - (target_logit - max));
    const float one = grad_scale.get();
    scale_row(begin, one * own / sum, one, false, target - first);
  }

 private:
  ATOLL_DEVICE void scale_row(std::int64_t begin, float scale, float of_target, bool is_ignored,
                              std::int64_t target) const {
    for (std::int64_t v = thread() * V; with_gradient && v < size; v += num_threads() * V) {
      auto pack = exps.template load<V>(begin + v);
      for (int i = 0; i < V; ++i) {
        // Rows without a target still have their logits, which may be anything.
        const float p = is_ignored ? 0.0F : pack[i] * scale;
        pack[i] = v + i == target ? p - of_target : p;
      }
      exps.template store<V>(begin + v, pack);
    }
  }
};

using VocabularyPartKernels =
    KernelList<LocalTokens, LocalPositions, ClearForeignRows<float, 1>, ClearForeignRows<float, 4>,
               ClearForeignRows<Bf16, 1>, ClearForeignRows<Bf16, 8>, SoftmaxPart<1>, SoftmaxPart<4>,
               CrossEntropyPart<1>, CrossEntropyPart<4>>;

}  // namespace atl::ops::cuda
