#pragma once

// Causal attention for any head of at most kMaxHeadDim elements, in f32: a warp for each query (or
// key), whose lanes share the head's elements. Softmax runs along the keys (Dao et al. 2022), so
// memory is O(T). No tensor cores: every sum has one order, which no GPU changes.

#include "atoll/ops/attention/cuda_setup.h"
#include "atoll/ops/cuda/kernel_list.h"

namespace atl::ops::cuda {

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
  /// to = before to + factor values; what is there is not read where `before` is 0.
  ATOLL_DEVICE void join(const Global<float>& to, std::int64_t at, int head_dim, float before,
                         float factor) const {
    for (int i = 0; i < kCount; ++i) {
      const int d = i * kWarp + lane();
      if (d >= head_dim) continue;
      const float old = before == 0.0F ? 0.0F : before * to.load(at + d);
      to.store(at + d, old + values[i] * factor);
    }
  }
  /// to += factor values.
  ATOLL_DEVICE void add_to(const Global<float>& to, std::int64_t at, int head_dim,
                           float factor) const {
    for (int i = 0; i < kCount; ++i) {
      const int d = i * kWarp + lane();
      if (d < head_dim) to.store(at + d, to.load(at + d) + values[i] * factor);
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
template <typename T, typename Setup = AttentionSetup>
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  static constexpr int kMaxThreads = 128;
  HeadRows<const T> queries;
  HeadRows<const T> keys;
  HeadRows<const T> values;
  HeadRows<AttentionResult<T, Setup>> out;
  Global<float> lse;  // (B, heads, T), or empty
  Setup setup;
  std::int64_t num_rows;  // B * heads * T

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= num_rows) return;
    const auto t = static_cast<int>(row % setup.length);
    const auto head = static_cast<int>(row / setup.length % setup.heads);
    const std::int64_t b = row / setup.length / setup.heads;
    const int kv_head = head / setup.group();
    const HeadPart q = HeadPart::load(queries.rows, queries.at(b, t, head), setup.head_dim);
    HeadPart sum = {};
    float max = -3.0e38F, total = 0;
    for (int s = setup.first_key(b, t); s <= setup.own_key(t); ++s) {
      const HeadPart k = HeadPart::load(keys.rows, keys.at(b, s, kv_head), setup.head_dim);
      const float score = AttentionScore::of(setup, dot(q, k)).value;
      const float top = score > max ? score : max;
      const float before = exp_f32(max - top);
      const float p = exp_f32(score - top);
      const HeadPart v = HeadPart::load(values.rows, values.at(b, s, kv_head), setup.head_dim);
      for (int i = 0; i < HeadPart::kCount; ++i) sum.values[i] *= before;
      sum.add(p, v);
      total = fmaf(total, before, p);
      max = top;
    }
    if constexpr (Setup::kIsBlock) {
      const std::int64_t at = setup.lse_at(b, head, t);
      // One lane reads what it then writes.
      const float old = shuffle(setup.merges && lane() == 0 ? lse.load(at) : 0.0F, 0);
      const auto merge = AttentionMerge::of(setup.merges, old, max, total);
      sum.join(out.rows, out.at(b, t, head), setup.head_dim, merge.before, merge.now);
      if (lane() == 0) lse.store(at, merge.lse);
    } else {
      sum.store(out.rows, out.at(b, t, head), setup.head_dim, 1.0F / total);
      if (lane() == 0 && lse.size > 0) lse.store(row, max + log_f32(total));
    }
  }
};

/// dq of each query: ds = p (dout v - dout out) slope, dq = scale ds k.
template <typename T, typename Setup = AttentionSetup>
struct AttentionBackwardQuery {
  static constexpr const char* kName = "attention_backward_query";
  static constexpr int kMaxThreads = 128;
  HeadRows<const T> queries, keys, values;
  HeadRows<const T> out, dout;
  Global<const float> lse;
  HeadRows<AttentionResult<T, Setup>> dqueries;
  Setup setup;
  std::int64_t num_rows;  // B * heads * T

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= num_rows) return;
    const auto t = static_cast<int>(row % setup.length);
    const auto head = static_cast<int>(row / setup.length % setup.heads);
    const std::int64_t b = row / setup.length / setup.heads;
    const int kv_head = head / setup.group();
    const HeadPart q = HeadPart::load(queries.rows, queries.at(b, t, head), setup.head_dim);
    const HeadPart grad = HeadPart::load(dout.rows, dout.at(b, t, head), setup.head_dim);
    const float delta = dot(grad, HeadPart::load(out.rows, out.at(b, t, head), setup.head_dim));
    const float row_lse = lse.load(setup.lse_at(b, head, t));
    HeadPart dq = {};
    for (int s = setup.first_key(b, t); s <= setup.own_key(t); ++s) {
      const float dp =
          dot(grad, HeadPart::load(values.rows, values.at(b, s, kv_head), setup.head_dim)) - delta;
      const HeadPart k = HeadPart::load(keys.rows, keys.at(b, s, kv_head), setup.head_dim);
      const auto score = AttentionScore::of(setup, dot(q, k));
      const float p = exp_f32(score.value - row_lse);
      dq.add(p * dp * score.slope, k);
    }
    if constexpr (Setup::kIsBlock) {
      dq.add_to(dqueries.rows, dqueries.at(b, t, head), setup.head_dim, setup.scale);
    } else {
      dq.store(dqueries.rows, dqueries.at(b, t, head), setup.head_dim, setup.scale);
    }
  }
};

/// dk and dv of each key: the sums over the query heads of its group and the queries that see it,
/// in their order.
template <typename T, typename Setup = AttentionSetup>
struct AttentionBackwardKey {
  static constexpr const char* kName = "attention_backward_key";
  static constexpr int kMaxThreads = 128;
  HeadRows<const T> queries, keys, values;
  HeadRows<const T> out, dout;
  Global<const float> lse;
  HeadRows<AttentionResult<T, Setup>> dkeys, dvalues;
  Setup setup;
  std::int64_t rows;  // B * kv_heads * keys

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const auto s = static_cast<int>(row % setup.num_keys());
    const auto kv_head = static_cast<int>(row / setup.num_keys() % setup.kv_heads);
    const std::int64_t b = row / setup.num_keys() / setup.kv_heads;
    const HeadPart k = HeadPart::load(keys.rows, keys.at(b, s, kv_head), setup.head_dim);
    const HeadPart v = HeadPart::load(values.rows, values.at(b, s, kv_head), setup.head_dim);
    HeadPart dk = {}, dv = {};
    for (int g = 0; g < setup.group(); ++g) {
      const int head = kv_head * setup.group() + g, begin = setup.first_query(s);
      // `out` and `dout` lie alike.
      std::int64_t query_at = queries.at(b, begin, head), out_at = out.at(b, begin, head);
      std::int64_t lse_at = setup.lse_at(b, head, begin);
      for (int t = begin; t < setup.length; ++t) {
        // What does not see it, nor will later: see first_key.
        if (setup.first_key(b, t) > s) break;
        const HeadPart q = HeadPart::load(queries.rows, query_at, setup.head_dim);
        const HeadPart grad = HeadPart::load(dout.rows, out_at, setup.head_dim);
        const float delta = dot(grad, HeadPart::load(out.rows, out_at, setup.head_dim));
        const float row_lse = lse.load(lse_at);
        query_at += queries.row;
        out_at += out.row;
        ++lse_at;
        const auto score = AttentionScore::of(setup, dot(q, k));
        const float p = exp_f32(score.value - row_lse);
        dv.add(p, grad);
        dk.add(p * (dot(grad, v) - delta) * score.slope, q);
      }
    }
    if constexpr (Setup::kIsBlock) {
      dk.add_to(dkeys.rows, dkeys.at(b, s, kv_head), setup.head_dim, setup.scale);
      dv.add_to(dvalues.rows, dvalues.at(b, s, kv_head), setup.head_dim, 1.0F);
    } else {
      dk.store(dkeys.rows, dkeys.at(b, s, kv_head), setup.head_dim, setup.scale);
      dv.store(dvalues.rows, dvalues.at(b, s, kv_head), setup.head_dim, 1.0F);
    }
  }
};

/// Generation: copies the keys and values of new rows to their rows of the caches, V at a time.
template <typename T, int V>
struct StoreKeys {
  static constexpr const char* kName = "store_keys";
  static constexpr int kMaxThreads = 256;
  HeadRows<const T> keys, values;
  HeadRows<T> k_cache, v_cache;
  std::int64_t length;  // T, of new rows
  std::int64_t past;    // rows in the caches already
  int width;            // of all key-value heads together
  std::int64_t size;    // B * T * width

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = V * (std::int64_t{block_x()} * num_threads() + thread());
    if (i >= size) return;
    const std::int64_t b = i / width / length, t = i / width % length, at = i % width;
    k_cache.rows.template store<V>(k_cache.at(b, past + t, 0) + at,
                                   keys.rows.template load<V>(keys.at(b, t, 0) + at));
    v_cache.rows.template store<V>(v_cache.at(b, past + t, 0) + at,
                                   values.rows.template load<V>(values.at(b, t, 0) + at));
  }
};

using AttentionKernels =
    KernelList<AttentionForward<float>, AttentionForward<Bf16>, AttentionBackwardQuery<float>,
               AttentionBackwardQuery<Bf16>, AttentionBackwardKey<float>,
               AttentionBackwardKey<Bf16>, AttentionForward<float, AttentionBlockSetup>,
               AttentionForward<Bf16, AttentionBlockSetup>,
               AttentionBackwardQuery<float, AttentionBlockSetup>,
               AttentionBackwardQuery<Bf16, AttentionBlockSetup>,
               AttentionBackwardKey<float, AttentionBlockSetup>,
               AttentionBackwardKey<Bf16, AttentionBlockSetup>, StoreKeys<float, 1>,
               StoreKeys<float, 4>, StoreKeys<Bf16, 1>, StoreKeys<Bf16, 8>>;

}  // namespace atl::ops::cuda
