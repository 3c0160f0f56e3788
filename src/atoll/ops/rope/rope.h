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

/// Which two elements of a head turn together, of the R that are rotated.
enum class RotaryPairs {
  kHalves,      ///< i and i + R / 2: the "rotate half" of most Hugging Face models
  kNeighbours,  ///< 2i and 2i + 1: GPT-J and GLM-4
};

/// Rotates the first R elements of each query and key head of qkv in place by their position (Su et
/// al. 2021); the rest of a head stays (`partial_rotary_factor` of Phi-4-mini, Pythia and GLM-4).
///
/// qkv: (B, T, qkv_width)  table: (P, R), row p = cos of the R/2 angles of position p, then their
/// sin, whatever the pairs; qkv's compute dtype. R is even and at most head_dim.
/// positions: i32 (B, T), or undefined: row t of each sequence is at t. Throws Error(kInternal)
/// naming the first position that is not below P.
/// `inverse` rotates back: the gradient of the forward rotation.
void rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
          Tensor qkv, RotaryPairs pairs = RotaryPairs::kHalves);

}  // namespace atl::ops
