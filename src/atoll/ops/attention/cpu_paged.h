#pragma once

// Attention to keys and values in blocks, on vector units; arguments as in
// ops/attention/attention_paged.h, already checked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/ops/attention/attention_paged.h"

namespace atl::ops::cpu {

/// Queries that one task takes through each tile of keys while it is in the first-level cache.
constexpr std::int64_t kPagedRows = 8;

/// The query heads of one key-value head, for up to kPagedRows rows of one sequence.
struct PagedTask {
  const float* q = nullptr;  ///< the first row's first head
  const float* k = nullptr;  ///< this head of place 0 of the cache
  const float* v = nullptr;
  float* out = nullptr;        ///< as q
  float* lse = nullptr;        ///< of the first row's first head; null: not asked for
  std::size_t lse_stride = 0;  ///< from head to head; rows are neighbours
  std::size_t q_stride = 0, kv_stride = 0, out_stride = 0;  ///< from row to row
  const std::int32_t* blocks = nullptr;
  std::int64_t block_size = 0;
  std::size_t head_dim = 0;
  std::size_t num_heads = 0;
  std::int64_t num_rows = 0;
  std::int64_t position = 0;  ///< of the first row
  std::int64_t window = 0;
  float factor = 1;
  float cap = 0;

  /// The first key that a query at this position sees.
  std::int64_t first_key(std::int64_t at) const {
    return window == 0 ? 0 : std::max<std::int64_t>(0, at + 1 - window);
  }
  /// Where a position's row is in the cache, in elements.
  std::size_t place(std::int64_t at) const {
    const std::int64_t row = blocks[at / block_size] * block_size + at % block_size;
    return static_cast<std::size_t>(row) * kv_stride;
  }
};

/// The keys and values of the rows are in the caches already. lse: f32 (1, num_heads, R), or
/// undefined.
void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse);

/// ops::attention_forward with the bits of attention_paged, for sequences that are one document
/// each: what a trainer computes is then what a sampler has computed. f32, heads of up to 256.
void attention_by_rows(Run& run, const HeadLayout& heads, AttentionScores scores,
                       std::int64_t window, Tensor qkv, Tensor out, Tensor lse);

}  // namespace atl::ops::cpu
