#pragma once

// What the ops of attention check of their operands.

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

/// Throws Error(kInternal) unless qkv is (B, T, heads.qkv_width()).
inline void check_heads(const char* op, const HeadLayout& heads, const Tensor& qkv) {
  ATOLL_CHECK(heads.num_kv_heads > 0 && heads.head_dim > 0 &&
                  heads.num_heads % heads.num_kv_heads == 0 && heads.num_heads > 0,
              "{}: {} query heads cannot share {} key-value heads of {} elements", op,
              heads.num_heads, heads.num_kv_heads, heads.head_dim);
  ATOLL_CHECK(qkv.shape().rank() == 3 && qkv.dim(-1) == heads.qkv_width(),
              "{}: {} where (B, T, {}) is needed", op, qkv.spec().to_string(), heads.qkv_width());
}

/// (B, T, query_width), the spec of attended values.
inline Spec attended_spec(const HeadLayout& heads, const Tensor& qkv) {
  return qkv.spec().with_last(heads.query_width());
}

/// (B, num_heads, T) in the compute dtype, the spec of what each row's softmax leaves for backward.
inline Spec lse_spec(const HeadLayout& heads, const Tensor& qkv) {
  return {compute_dtype(qkv.dtype()), {qkv.dim(0), heads.num_heads, qkv.dim(1)}};
}

/// Throws Error(kInternal) for a window of less than 0 keys.
inline void check_window(const char* op, const AttentionMask& mask) {
  ATOLL_CHECK(mask.window >= 0, "{}: a window of {} keys", op, mask.window);
}

/// Throws Error(kInternal) for a cap that no score could stay below.
inline void check_scores(const char* op, const AttentionScores& scores) {
  ATOLL_CHECK(scores.softcap >= 0, "{}: scores capped to {}", op, scores.softcap);
}

}  // namespace atl::ops
