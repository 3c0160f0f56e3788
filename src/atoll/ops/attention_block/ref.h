#pragma once

// Attention of blocks row by row, for any storage, in its compute type. Threads share out the
// (batch, key-value head) pairs, which have nothing to add to one another.

#include <cmath>
#include <limits>

#include "atoll/ops/attention/ref.h"
#include "atoll/ops/attention_block/attention_block.h"

namespace atl::ops::ref {

/// Of a block's keys, counted from its first, those that query i of it sees: [begin, end).
struct SeenKeys {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

inline SeenKeys seen_keys(const AttentionMask& mask, const AttentionBlock& block, std::int64_t b,
                          std::int64_t i, std::int64_t num_rows) {
  const std::int64_t token = block.first_query + i;
  std::int64_t first = mask.window == 0 ? 0 : token - mask.window + 1;
  if (mask.positions.defined()) {
    const std::int64_t row = b * num_rows + block.query_row + i;
    first = std::max(first, token - mask.positions.data<std::int32_t>()[row]);
  }
  const std::int64_t begin = std::max<std::int64_t>(0, first - block.first_key);
  return {begin, std::max(begin, std::min(block.num_keys, token + 1 - block.first_key))};
}

/// Arguments as in ops/attention_block/attention_block.h.
template <typename T>
void attention_block_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                             const AttentionMask& mask, const AttentionBlock& block, bool is_first,
                             Tensor qkv, Tensor kv, Tensor out, Tensor lse) {
  using A = Compute<T>;
  const std::int64_t num_rows = qkv.dim(1), D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t kv_stride = 2 * heads.kv_width();
  run.threads().run(qkv.dim(0) * heads.num_heads, [&](std::int64_t task) {
    const std::int64_t b = task / heads.num_heads, h = task % heads.num_heads;
    const T* k = kv.data<T>() + (b * kv.dim(1) + block.key_row) * kv_stride + h / group * D;
    std::vector<A> here(static_cast<std::size_t>(D));
    for (std::int64_t i = 0; i < block.num_queries; ++i) {
      const std::int64_t row = block.query_row + i;
      A* attended = out.data<A>() + (b * num_rows + row) * heads.query_width() + h * D;
      A& sum = lse.data<A>()[(b * heads.num_heads + h) * num_rows + row];
      if (is_first) {
        std::fill_n(attended, D, A(0));
        sum = -std::numeric_limits<A>::infinity();
      }
      const SeenKeys seen = seen_keys(mask, block, b, i, num_rows);
      if (seen.begin == seen.end) continue;
      const T* first = k + seen.begin * kv_stride;
      const A row_lse = attention_row(
          scores, qkv.data<T>() + (b * num_rows + row) * heads.qkv_width() + h * D, first,
          first + heads.kv_width(), kv_stride, seen.end - seen.begin, D, here.data());
      const A higher = std::max(sum, row_lse);
      const A both = higher + std::log(std::exp(sum - higher) + std::exp(row_lse - higher));
      for (std::int64_t d = 0; d < D; ++d) {
        attended[d] = std::exp(sum - both) * attended[d] +
                      std::exp(row_lse - both) * here[static_cast<std::size_t>(d)];
      }
      sum = both;
    }
  });
}

/// Arguments as in ops/attention_block/attention_block.h; the formulas are those of
/// attention_backward.
template <typename T>
void attention_block_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                              const AttentionMask& mask, const AttentionBlock& block, Tensor qkv,
                              Tensor kv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv,
                              Tensor dkv) {
  using A = Compute<T>;
  const std::int64_t num_rows = qkv.dim(1), D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t kv_stride = 2 * heads.kv_width();
  const A factor = static_cast<A>(scores.scale);
  run.threads().run(qkv.dim(0) * heads.num_kv_heads, [&](std::int64_t task) {
    const std::int64_t b = task / heads.num_kv_heads, kv_head = task % heads.num_kv_heads;
    const std::int64_t first = (b * kv.dim(1) + block.key_row) * kv_stride + kv_head * D;
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (std::int64_t i = 0; i < block.num_queries; ++i) {
        const std::int64_t row = b * num_rows + block.query_row + i;
        const T* dout_row = dout.data<T>() + row * heads.query_width() + h * D;
        const A delta = dot(dout_row, out.data<T>() + row * heads.query_width() + h * D, D);
        const A row_lse = lse.data<A>()[(b * heads.num_heads + h) * num_rows + block.query_row + i];
        const T* q = qkv.data<T>() + row * heads.qkv_width() + h * D;
        A* dq = dqkv.data<A>() + row * heads.qkv_width() + h * D;
        const SeenKeys seen = seen_keys(mask, block, b, i, num_rows);
        for (std::int64_t s = seen.begin; s < seen.end; ++s) {
          const T* k = kv.data<T>() + first + s * kv_stride;
          const T* v = k + heads.kv_width();
          A* dk = dkv.data<A>() + first + s * kv_stride;
          A* dv = dk + heads.kv_width();
          const auto score = Score<A>::of(scores, dot(q, k, D));
          const A p = std::exp(score.value - row_lse);
          const A ds = factor * p * (dot(dout_row, v, D) - delta) * score.slope;
          for (std::int64_t d = 0; d < D; ++d) {
            dq[d] += ds * widen(k[d]);
            dk[d] += ds * widen(q[d]);
            dv[d] += p * widen(dout_row[d]);
          }
        }
      }
    }
  });
}

}  // namespace atl::ops::ref
