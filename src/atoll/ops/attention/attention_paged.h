#pragma once

// Attention of several sequences in one pass, whose keys and values lie in blocks of one memory.

#include <cstdint>
#include <span>

#include "atoll/ops/attention/attention.h"

namespace atl::ops {

/// Rows of a pass that continue one sequence, and where its keys and values are.
struct PagedRows {
  std::int64_t first_row = 0;       ///< of the pass
  std::int64_t num_rows = 0;        ///< at least one
  std::int64_t first_position = 0;  ///< of the first row in its sequence
  /// Position p of the sequence is at p % block_size of block blocks[p / block_size].
  std::span<const std::int32_t> blocks;
};

/// Stores the keys and values of all rows in the caches, then attends each query to everything of
/// its sequence up to its own key, or to the last `window` of it (0: all). What a row gets depends
/// on its query and its sequence's keys and values alone, bit for bit: not on other rows, on how
/// many there are, nor on the pass in which its sequence's keys came. Rows that belong to no
/// sequence become zeros.
///
/// qkv: f32 (1, R, qkv_width)  k_cache, v_cache: f32 (1, N * block_size, kv_width)
/// out: f32 (1, R, query_width). On a CPU only, with heads of up to 256. Throws Error(kInternal)
/// where rows overlap or a block is not in the caches.
void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out);

}  // namespace atl::ops
