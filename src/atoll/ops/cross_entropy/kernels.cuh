#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/per_step.cuh"

namespace atl::ops::cuda {

/// e^(logit - top), times `scale`, of logits that are at most `top`.
template <typename T>
struct RowExp {
  float top, scale;

  ATOLL_DEVICE static RowExp of(float top, float scale) { return {top, scale}; }
  ATOLL_DEVICE float operator()(float logit) const { return exp_falling(logit - top) * scale; }
};
/// Of bf16, to 3e-6, in two thirds of the instructions: there are two exponentials for each logit,
/// and they, not memory, would decide how long a row takes. By powers of two; nothing comes to less
/// than 2^-126 scale.
template <>
struct RowExp<Bf16> {
  static constexpr int kTerms = 5;
  float top;
  float terms[kTerms];

  ATOLL_DEVICE static RowExp of(float top, float scale) {
    // The polynomial of degree 4 that is nearest to 2^f, relatively, for f to 1/2 (Remez).
    constexpr float kTermsOfOne[] = {0.9999992847442627F, 0.6931217908859253F, 0.2402474582195282F,
                                     0.055918026715517044F, 0.009570082649588585F};
    RowExp exp = {top};
    ATOLL_UNROLL
    for (int i = 0; i < kTerms; ++i) exp.terms[i] = kTermsOfOne[i] * scale;
    return exp;
  }
  ATOLL_DEVICE float operator()(float logit) const {
    const float shift = 12582912.0F;  // as in exp_falling
    // The difference first, which loses nothing: logits may be large.
    const float power = max_or_nan((logit - top) * kLog2E, -126.0F);
    const float shifted = power + shift;
    const float f = power - (shifted - shift);
    float sum = terms[kTerms - 1];
    ATOLL_UNROLL
    for (int i = kTerms - 2; i >= 0; --i) sum = fmaf(sum, f, terms[i]);
    return sum * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U);
  }

 private:
  static constexpr float kLog2E = 1.44269504F;
};

/// The loss of each row of logits, which become grad_scale d(loss)/d(logits) in place when
/// `with_gradient`. A block for each row; the largest logit and the sum of exponentials are found
/// in one sweep (Milakov & Gimelshein 2018), the gradient in a second. Of the first sweep each
/// thread keeps its logits in shared memory, as many as there is room for.
template <typename T, int V>
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  static constexpr int kMaxThreads = 512;
  static constexpr int kMinBlocks = 2;
  static constexpr std::int32_t kIgnore = -1;  // kIgnoreTarget
  Global<T> logits;                            // (rows, vocab)
  Global<const std::int32_t> targets;          // (rows)
  Global<float> loss;                          // (rows)
  std::int64_t vocab;
  int kept;  // of a row, in shared memory
  PerStep<float> grad_scale;
  bool with_gradient;

  static constexpr int kSumBytes = 2 * kMaxThreads / 32 * static_cast<int>(sizeof(float));
  /// What each GPU from compute capability 8.0 on gives a block, of which an H100 holds two.
  static constexpr int kMaxShared = 99 * 1024;
  /// Of a row of `vocab`, in packs. Where no gradient is asked for, nothing is read again.
  static constexpr int most_kept(std::int64_t vocab) {
    const std::int64_t room = (kMaxShared - kSumBytes) / static_cast<int>(sizeof(T)) / V * V;
    return static_cast<int>(vocab < room ? vocab : room);
  }
  static constexpr int shared_bytes() { return kMaxShared; }  // at most
  static constexpr int shared_bytes_of(int kept) {
    return kSumBytes + kept * static_cast<int>(sizeof(T));
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t begin = block_x() * vocab;
    const std::int32_t target = targets.load(block_x());
    if (target == kIgnore) {  // for the whole block alike
      if (thread() == 0) loss.store(block_x(), 0.0F);
      for (std::int64_t v = thread() * V; with_gradient && v < vocab; v += num_threads() * V) {
        Pack<T, V> zero;
        for (int i = 0; i < V; ++i) zero[i] = narrowed<T>(0.0F);
        logits.template store<V>(begin + v, zero);
      }
      return;
    }
    const Shared<T> row = shared_memory<T>(kSumBytes, kept);
    const float lowest = -3.0e38F;
    const auto size = static_cast<int>(vocab);
    const int step = num_threads() * V;
    float max = lowest, sum = 0;
    auto exp = RowExp<T>::of(0.0F, 1.0F);  // set when the first logits are seen
    // What comes next is under way while this is computed.
    Pack<T, V> next = {};
    if (thread() * V < size) next = logits.template load<V>(begin + thread() * V);
    for (int v = thread() * V; v < size; v += step) {
      const Pack<T, V> pack = next;
      if (v + step < size) next = logits.template load<V>(begin + v + step);
      if (v < kept) row.template store<V>(v, pack);
      const auto held = Held<T, V>::of(pack);
      float top = max;
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) top = fmaxf(top, held[i]);
      if (top > max) {  // seldom, after the first few
        sum *= exp_falling(max - top);
        max = top;
        exp = RowExp<T>::of(max, 1.0F);
      }
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) sum += exp(held[i]);
    }
    const float warp_top = warp_max(max);
    const float warp_total = warp_sum(sum * exp_falling(max - warp_top));
    const int warps = num_threads() / kWarp;
    const Shared<float> tops = shared_memory<float>(0, kMaxThreads / kWarp);
    const Shared<float> totals = shared_memory<float>(
        kMaxThreads / kWarp * static_cast<int>(sizeof(float)), kMaxThreads / kWarp);
    if (lane() == 0) {
      tops.store(warp(), warp_top);
      totals.store(warp(), warp_total);
    }
    const float target_logit = widened(logits.load(begin + target));
    sync_block();
    float top = lowest;
    for (int w = 0; w < warps; ++w) top = tops.load(w) > top ? tops.load(w) : top;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += totals.load(w) * exp_falling(tops.load(w) - top);
    if (thread() == 0) loss.store(block_x(), log_f32(total) - (target_logit - top));
    if (!with_gradient) return;
    const float of_target = grad_scale.get();
    const auto gradient = RowExp<T>::of(top, of_target / total);
    for (int v = thread() * V; v < size; v += step) {
      const auto held =
          Held<T, V>::of(v < kept ? row.template load<V>(v) : logits.template load<V>(begin + v));
      float grads[V];
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) grads[i] = gradient(held[i]);
      if (v <= target && target < v + V) {
        ATOLL_UNROLL
        for (int i = 0; i < V; ++i) grads[i] -= v + i == target ? of_target : 0.0F;
      }
      logits.template store<V>(begin + v, packed<T>(grads));
    }
  }
};

using CrossEntropyKernels = KernelList<CrossEntropy<float, 1>, CrossEntropy<float, 4>,
                                       CrossEntropy<Bf16, 1>, CrossEntropy<Bf16, 8>>;

}  // namespace atl::ops::cuda
