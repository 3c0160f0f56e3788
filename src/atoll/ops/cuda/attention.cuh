#pragma once

// Causal attention for any head of at most kMaxHeadDim elements, in f32: a warp for each query (or
// key), whose lanes share the head's elements. Softmax runs along the keys (Dao et al. 2022), so
// memory is O(T). No tensor cores: every sum has one order, which no GPU changes.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// How heads lie in a row of qkv, and which keys a query sees; see ops/attention.h.
struct AttentionSetup {
  static constexpr int kMaxHeadDim = 256;
  Global<const std::int32_t> positions;  // (B, T), or empty
  std::int64_t length;                   // T
  std::int64_t window;                   // 0: no limit
  int heads;
  int kv_heads;
  int head_dim;
  float scale;

  ATOLL_DEVICE int group() const { return heads / kv_heads; }
  ATOLL_DEVICE std::int64_t qkv_width() const {
    return (heads + 2 * std::int64_t{kv_heads}) * head_dim;
  }
  /// The first key that query t of sequence b sees.
  ATOLL_DEVICE std::int64_t first_key(std::int64_t b, std::int64_t t) const {
    std::int64_t first = window > 0 && t >= window ? t - window + 1 : 0;
    if (positions.size == 0) return first;
    const std::int64_t begin = t - positions.load(b * length + t);
    return begin > first ? begin : first;
  }
  ATOLL_DEVICE std::int64_t query(std::int64_t b, std::int64_t t, int head) const {
    return (b * length + t) * qkv_width() + std::int64_t{head} * head_dim;
  }
  ATOLL_DEVICE std::int64_t key(std::int64_t b, std::int64_t t, int kv_head) const {
    return query(b, t, heads + kv_head);
  }
  ATOLL_DEVICE std::int64_t value(std::int64_t b, std::int64_t t, int kv_head) const {
    return query(b, t, heads + kv_heads + kv_head);
  }
  ATOLL_DEVICE std::int64_t attended(std::int64_t b, std::int64_t t, int head) const {
    return ((b * length + t) * heads + head) * head_dim;
  }
};

/// A head's elements, shared out among a warp's lanes: element i * 32 + lane is values[i].
struct HeadPart {
  static constexpr int kCount = AttentionSetup::kMaxHeadDim / kWarp;
  float values[kCount];

  template <typename T>
  ATOLL_DEVICE static HeadPart load(const Global<const T>& from, std::int64_t at, int head_dim) {
    HeadPart part;
    for (int i = 0; i < kCount; ++i) {
      const int d = i * kWarp + lane();
      part.values[i] = d < head_dim ? widened(from.load(at + d)) : 0.0F;
    }
    return part;
  }
  template <typename T>
  ATOLL_DEVICE void store(const Global<T>& to, std::int64_t at, int head_dim, float factor) const {
    for (int i = 0; i < kCount; ++i) {
      const int d = i * kWarp + lane();
      if (d < head_dim) to.store(at + d, narrowed<T>(values[i] * factor));
    }
  }
  ATOLL_DEVICE void add(float factor, const HeadPart& other) {
    for (int i = 0; i < kCount; ++i) values[i] = fmaf(factor, other.values[i], values[i]);
  }
};

ATOLL_DEVICE float dot(const HeadPart& a, const HeadPart& b) {
  float sum = 0;
  for (int i = 0; i < HeadPart::kCount; ++i) sum = fmaf(a.values[i], b.values[i], sum);
  return warp_sum(sum);
}

/// out and lse of each query.
template <typename T>
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  static constexpr int kMaxThreads = 128;
  Global<const T> qkv;  // (B, T, qkv_width)
  Global<T> out;        // (B, T, heads, head_dim)
  Global<float> lse;    // (B, heads, T)
  AttentionSetup setup;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= lse.size) return;
    const std::int64_t t = row % setup.length;
    const auto head = static_cast<int>(row / setup.length % setup.heads);
    const std::int64_t b = row / setup.length / setup.heads;
    const int kv_head = head / setup.group();
    const HeadPart q = HeadPart::load(qkv, setup.query(b, t, head), setup.head_dim);
    HeadPart sum = {};
    float max = -3.0e38F, total = 0;
    for (std::int64_t s = setup.first_key(b, t); s <= t; ++s) {
      const HeadPart k = HeadPart::load(qkv, setup.key(b, s, kv_head), setup.head_dim);
      const float score = setup.scale * dot(q, k);
      const float top = score > max ? score : max;
      const float before = exp_f32(max - top);
      const float p = exp_f32(score - top);
      const HeadPart v = HeadPart::load(qkv, setup.value(b, s, kv_head), setup.head_dim);
      for (int i = 0; i < HeadPart::kCount; ++i) sum.values[i] *= before;
      sum.add(p, v);
      total = fmaf(total, before, p);
      max = top;
    }
    sum.store(out, setup.attended(b, t, head), setup.head_dim, 1.0F / total);
    if (lane() == 0) lse.store(row, max + log_f32(total));
  }
};

/// dq of each query: ds = p (dout v - dout out), dq = scale ds k.
template <typename T>
struct AttentionBackwardQuery {
  static constexpr const char* kName = "attention_backward_query";
  static constexpr int kMaxThreads = 128;
  Global<const T> qkv;
  Global<const T> out;
  Global<const float> lse;
  Global<const T> dout;
  Global<T> dqkv;
  AttentionSetup setup;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= lse.size) return;
    const std::int64_t t = row % setup.length;
    const auto head = static_cast<int>(row / setup.length % setup.heads);
    const std::int64_t b = row / setup.length / setup.heads;
    const int kv_head = head / setup.group();
    const std::int64_t at = setup.attended(b, t, head);
    const HeadPart q = HeadPart::load(qkv, setup.query(b, t, head), setup.head_dim);
    const HeadPart grad = HeadPart::load(dout, at, setup.head_dim);
    const float delta = dot(grad, HeadPart::load(out, at, setup.head_dim));
    const float row_lse = lse.load(row);
    HeadPart dq = {};
    for (std::int64_t s = setup.first_key(b, t); s <= t; ++s) {
      const float dp =
          dot(grad, HeadPart::load(qkv, setup.value(b, s, kv_head), setup.head_dim)) - delta;
      const HeadPart k = HeadPart::load(qkv, setup.key(b, s, kv_head), setup.head_dim);
      const float p = exp_f32(setup.scale * dot(q, k) - row_lse);
      dq.add(p * dp, k);
    }
    dq.store(dqkv, setup.query(b, t, head), setup.head_dim, setup.scale);
  }
};

/// dk and dv of each key: the sums over the query heads of its group and the queries that see it,
/// in their order.
template <typename T>
struct AttentionBackwardKey {
  static constexpr const char* kName = "attention_backward_key";
  static constexpr int kMaxThreads = 128;
  Global<const T> qkv;
  Global<const T> out;
  Global<const float> lse;
  Global<const T> dout;
  Global<T> dqkv;
  AttentionSetup setup;
  std::int64_t rows;  // B * kv_heads * T

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t s = row % setup.length;
    const auto kv_head = static_cast<int>(row / setup.length % setup.kv_heads);
    const std::int64_t b = row / setup.length / setup.kv_heads;
    const HeadPart k = HeadPart::load(qkv, setup.key(b, s, kv_head), setup.head_dim);
    const HeadPart v = HeadPart::load(qkv, setup.value(b, s, kv_head), setup.head_dim);
    HeadPart dk = {}, dv = {};
    for (int g = 0; g < setup.group(); ++g) {
      const int head = kv_head * setup.group() + g;
      for (std::int64_t t = s; t < setup.length; ++t) {
        // Documents follow one another and windows move on: what does not see it, nor will later.
        if (setup.first_key(b, t) > s) break;
        const std::int64_t at = setup.attended(b, t, head);
        const HeadPart q = HeadPart::load(qkv, setup.query(b, t, head), setup.head_dim);
        const HeadPart grad = HeadPart::load(dout, at, setup.head_dim);
        const float delta = dot(grad, HeadPart::load(out, at, setup.head_dim));
        const float row_lse = lse.load((b * setup.heads + head) * setup.length + t);
        const float p = exp_f32(setup.scale * dot(q, k) - row_lse);
        dv.add(p, grad);
        dk.add(p * (dot(grad, v) - delta), q);
      }
    }
    dk.store(dqkv, setup.key(b, s, kv_head), setup.head_dim, setup.scale);
    dv.store(dqkv, setup.value(b, s, kv_head), setup.head_dim, 1.0F);
  }
};

using AttentionKernels = KernelList<AttentionForward<float>, AttentionForward<Bf16>,
                                    AttentionBackwardQuery<float>, AttentionBackwardQuery<Bf16>,
                                    AttentionBackwardKey<float>, AttentionBackwardKey<Bf16>>;

}  // namespace atl::ops::cuda
