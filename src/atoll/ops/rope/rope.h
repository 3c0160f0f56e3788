#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

/// How the innermost dim of a fused query-key-value tensor is divided: num_heads query heads, then
/// num_kv_heads key heads, then num_kv_heads value heads, each of head_dim elements.
struct HeadLayout {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;

  std::int64_t query_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
  std::int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

/// Rotates the query and key heads of qkv in place by their position (Su et al. 2021, with the
/// "rotate half" pairing of Hugging Face models: element i with element i + head_dim / 2).
///
/// qkv: (B, T, qkv_width)  table: (P, head_dim), row p = cos of the head_dim/2 angles of position
/// p, then their sin; qkv's compute dtype. positions: i32 (B, T), or undefined: row t of each
/// sequence is at t. Throws Error(kInternal) naming the first position that is not below P.
/// `inverse` rotates back: the gradient of the forward rotation.
void rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
          Tensor qkv);

}  // namespace atl::ops
