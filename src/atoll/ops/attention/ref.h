#pragma once

// Causal attention row by row, as its definition says, for any storage, in its compute type and
// O(T) memory. Threads
// share out the (batch, key-value head) pairs, which have nothing to add to one another.

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// sum of a[i] b[i] over n elements, in order.
template <typename T>
Compute<T> dot(const T* a, const T* b, std::int64_t n) {
  Compute<T> sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += widen(a[i]) * widen(b[i]);
  return sum;
}

/// Rows [0, num_rows) of D elements that lie `stride` apart = sums, rounded to T.
template <typename T>
void store_rows(const std::vector<Compute<T>>& sums, std::int64_t D, std::int64_t stride, T* rows) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    rows[at / D * stride + at % D] = narrow<T>(sums[i]);
  }
}

/// The score that a product of a query and a key becomes, and by how much it grows with the scaled
/// product.
template <typename A>
struct Score {
  A value;
  A slope;

  static Score of(const AttentionScores& scores, A product) {
    const A scaled = static_cast<A>(scores.scale) * product;
    if (scores.softcap == 0) return {scaled, 1};
    const A cap = static_cast<A>(scores.softcap);
    const A t = std::tanh(scaled / cap);
    return {cap * t, 1 - t * t};
  }
};

/// out = softmax(scores of q k^T) v for one query and `num_keys` keys; returns the log-sum-exp of
/// its scores. Key i is at k + i * stride, value i at v + i * stride; D elements each.
template <typename T, typename O, typename A = Compute<T>>
A attention_row(AttentionScores scores, const T* q, const T* k, const T* v, std::int64_t stride,
                std::int64_t num_keys, std::int64_t D, O* out) {
  std::vector<A> row(static_cast<std::size_t>(num_keys));
  for (std::int64_t s = 0; s < num_keys; ++s) {
    row[static_cast<std::size_t>(s)] = Score<A>::of(scores, dot(q, k + s * stride, D)).value;
  }
  const A max = *std::max_element(row.begin(), row.end());
  A sum = 0;
  for (A& score : row) {
    score = std::exp(score - max);
    sum += score;
  }
  std::vector<A> sums(static_cast<std::size_t>(D));
  for (std::int64_t s = 0; s < num_keys; ++s) {
    const A p = row[static_cast<std::size_t>(s)] / sum;
    for (std::int64_t d = 0; d < D; ++d) {
      sums[static_cast<std::size_t>(d)] += p * widen(v[s * stride + d]);
    }
  }
  store_rows(sums, D, D, out);
  return max + std::log(sum);
}

/// The first key that the query of row b * num_rows + t sees.
inline std::int64_t first_key(const AttentionMask& mask, std::int64_t b, std::int64_t t,
                              std::int64_t num_rows) {
  std::int64_t first = mask.window == 0 ? 0 : std::max<std::int64_t>(0, t - mask.window + 1);
  if (mask.positions.defined()) {
    first = std::max(first, t - mask.positions.data<std::int32_t>()[b * num_rows + t]);
  }
  return first;
}

/// Arguments as in ops/attention/attention.h.
template <typename T>
void attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                       const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  const std::int64_t num_rows = qkv.dim(1);
  const std::int64_t D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t width = heads.qkv_width();
  run.threads().run(qkv.dim(0) * heads.num_kv_heads, [&](std::int64_t task) {
    const std::int64_t b = task / heads.num_kv_heads;
    const std::int64_t kv_head = task % heads.num_kv_heads;
    const T* sequence = qkv.data<T>() + b * num_rows * width;
    const T* k = sequence + heads.query_width() + kv_head * D;
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (std::int64_t t = 0; t < num_rows; ++t) {
        const std::int64_t first = first_key(mask, b, t, num_rows);
        const T* first_k = k + first * width;
        lse.data<Compute<T>>()[(b * heads.num_heads + h) * num_rows + t] = attention_row(
            scores, sequence + t * width + h * D, first_k, first_k + heads.kv_width(), width,
            t + 1 - first, D, out.data<T>() + (b * num_rows + t) * heads.query_width() + h * D);
      }
    }
  });
}

/// Arguments as in ops/attention/attention.h. With P = exp(S - lse) and delta = dout . out:
/// dv = P^T dout, dS = P (dout v^T - delta) slope of S, dq = scale dS k, dk = scale dS^T q.
template <typename T>
void attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                        const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse, Tensor dout,
                        Tensor dqkv) {
  using A = Compute<T>;
  const std::int64_t num_rows = qkv.dim(1);
  const std::int64_t D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t width = heads.qkv_width();
  const A factor = static_cast<A>(scores.scale);
  const auto size = static_cast<std::size_t>(D);
  run.threads().run(qkv.dim(0) * heads.num_kv_heads, [&](std::int64_t task) {
    const std::int64_t b = task / heads.num_kv_heads;
    const std::int64_t kv_head = task % heads.num_kv_heads;
    const T* sequence = qkv.data<T>() + b * num_rows * width;
    T* dsequence = dqkv.data<T>() + b * num_rows * width;
    const std::int64_t k_offset = heads.query_width() + kv_head * D;
    const std::int64_t v_offset = k_offset + heads.kv_width();
    std::vector<A> dk(static_cast<std::size_t>(num_rows) * size);
    std::vector<A> dv(dk.size());
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (std::int64_t t = 0; t < num_rows; ++t) {
        const std::int64_t out_offset = (b * num_rows + t) * heads.query_width() + h * D;
        const T* dout_row = dout.data<T>() + out_offset;
        const A delta = dot(dout_row, out.data<T>() + out_offset, D);
        const A row_lse = lse.data<A>()[(b * heads.num_heads + h) * num_rows + t];
        const T* q = sequence + t * width + h * D;
        std::vector<A> dq(size);
        for (std::int64_t s = first_key(mask, b, t, num_rows); s <= t; ++s) {
          const T* k = sequence + s * width + k_offset;
          const T* v = sequence + s * width + v_offset;
          const auto score = Score<A>::of(scores, dot(q, k, D));
          const A p = std::exp(score.value - row_lse);
          const A ds = factor * p * (dot(dout_row, v, D) - delta) * score.slope;
          for (std::size_t d = 0; d < size; ++d) {
            dq[d] += ds * widen(k[d]);
            dk[static_cast<std::size_t>(s) * size + d] += ds * widen(q[d]);
            dv[static_cast<std::size_t>(s) * size + d] += p * widen(dout_row[d]);
          }
        }
        store_rows(dq, D, width, dsequence + t * width + h * D);
      }
    }
    store_rows(dk, D, width, dsequence + k_offset);
    store_rows(dv, D, width, dsequence + v_offset);
  });
}

/// Arguments as in ops/attention/attention.h; the new keys and values are in the caches already.
/// lse: (B, num_heads, T), or undefined.
template <typename T>
void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      std::int64_t window, std::int64_t key_offset, Tensor qkv, Tensor k_cache,
                      Tensor v_cache, Tensor out, Tensor lse) {
  const std::int64_t num_rows = qkv.dim(1);
  const std::int64_t D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  run.threads().run(qkv.dim(0) * heads.num_heads, [&](std::int64_t task) {
    const std::int64_t b = task / heads.num_heads;
    const std::int64_t h = task % heads.num_heads;
    const std::int64_t cache = b * k_cache.dim(1) * heads.kv_width() + h / group * D;
    for (std::int64_t t = 0; t < num_rows; ++t) {
      const std::int64_t row = b * num_rows + t;
      const std::int64_t first = first_key({.window = window}, b, key_offset + t, num_rows);
      const std::int64_t kv = cache + first * heads.kv_width();
      const Compute<T> row_lse = attention_row(
          scores, qkv.data<T>() + row * heads.qkv_width() + h * D, k_cache.data<T>() + kv,
          v_cache.data<T>() + kv, heads.kv_width(), key_offset + t + 1 - first, D,
          out.data<T>() + row * heads.query_width() + h * D);
      if (lse.defined()) {
        lse.data<Compute<T>>()[(b * heads.num_heads + h) * num_rows + t] = row_lse;
      }
    }
  });
}

}  // namespace atl::ops::ref
