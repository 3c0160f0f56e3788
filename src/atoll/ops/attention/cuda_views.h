#pragma once

// Operands of attention as its kernels see them.

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/cuda_setup.h"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

inline AttentionSetup setup_of(const HeadLayout& heads, AttentionScores scores,
                               const AttentionMask& mask, const Tensor& qkv,
                               std::int64_t past = 0) {
  return {input<std::int32_t>(mask.positions), static_cast<int>(qkv.dim(1)), static_cast<int>(past),
          // A window of all there is has no end.
          mask.window < qkv.dim(1) + past ? static_cast<int>(mask.window) : 0,
          static_cast<int>(heads.num_heads), static_cast<int>(heads.num_kv_heads),
          static_cast<int>(heads.head_dim), static_cast<float>(scores.scale),
          static_cast<float>(scores.softcap)};
}

/// Heads of rows of `tensor` (B, rows, width) from element `offset` of a row on. T is const for
/// what is read.
template <typename T>
HeadRows<T> heads_of(const Tensor& tensor, const HeadLayout& heads, std::int64_t offset = 0) {
  using Element = std::remove_const_t<T>;
  const std::int64_t width = tensor.dim(-1);
  return {{tensor.data<Element>(), tensor.num_elements()},
          tensor.dim(1) * width,
          width,
          offset,
          static_cast<int>(heads.head_dim)};
}
/// Queries, keys and values of qkv, or their gradients.
template <typename T>
struct QkvViews {
  HeadRows<T> queries, keys, values;

  QkvViews(const Tensor& qkv, const HeadLayout& heads)
      : queries(heads_of<T>(qkv, heads)),
        keys(heads_of<T>(qkv, heads, heads.query_width())),
        values(heads_of<T>(qkv, heads, heads.query_width() + heads.kv_width())) {}
};

}  // namespace atl::ops::cuda
