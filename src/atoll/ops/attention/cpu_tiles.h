#pragma once

// What the parts of the tiled attention hand to each other. Keys and values may lie anywhere: in
// the fused qkv tensor (training) or in the caches of a generation. T is what they are stored in,
// float or Bf16; sums and statistics are f32.

#include <limits>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/cpu_shape.h"
#include "atoll/ops/run.h"

namespace atl::ops::cpu {

/// Where a row's running maximum begins: finite, so that differences are, and far below any score.
constexpr float kHiddenScore = -1e30F;
/// What a masked score is. Half of it is the running maximum of a row that has seen no key yet, so
/// that even there a masked score weighs nothing.
constexpr float kMaskedScore = 2 * kHiddenScore;

/// What queries are multiplied by before they meet keys: scores then come in units of log 2, or,
/// where they are to be capped, in units of the cap.
inline float query_factor(const AttentionScores& scores) {
  return static_cast<float>(scores.softcap == 0 ? scores.scale * kLog2E
                                                : scores.scale / scores.softcap);
}
/// The cap in units of log 2; 0: none.
inline float score_cap(const AttentionScores& scores) {
  return static_cast<float>(scores.softcap * kLog2E);
}

/// A block of queries of one head. Rows of q, k, v and out lie `stride` elements apart. O is what
/// attended values are stored in.
template <typename T, typename O = T>
struct ForwardTask {
  const T* q = nullptr;
  const T* k = nullptr;  ///< key 0
  const T* v = nullptr;
  O* out = nullptr;
  float* lse = nullptr;  ///< of the block's first query; may be null
  std::size_t q_stride = 0;
  std::size_t kv_stride = 0;
  std::size_t out_stride = 0;
  std::size_t head_dim = 0;
  std::size_t num_queries = 0;  ///< at most query_block(head_dim)
  std::size_t first_query = 0;  ///< the last key that the first one sees
  /// Keys that there are: queries may come after all of them.
  std::size_t num_keys = std::numeric_limits<std::size_t>::max();
  FirstKeys first_keys;  ///< of the block's queries
  AttentionScores scores = 1;
  bool merges = false;  ///< out and lse hold what other keys gave; O is float
};

/// The query heads of one key-value head, one query each, against a range of keys.
template <typename T>
struct DecodeTask {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  std::size_t kv_stride = 0;
  std::size_t num_keys = 0;
  std::size_t head_dim = 0;
  /// What products of a query and a key are multiplied by: see query_factor.
  float factor = 1;
  float cap = 0;  ///< log2(e) included; 0: none
  /// Receives the maximum (in units of log 2), the sum of exponentials, and head_dim sums of
  /// values weighted by them, per query head.
  float* partial = nullptr;
};

/// The gradients of one key-value head and its query heads, for a range of queries, of keys, or of
/// both. Pointers are those of query 0, key 0 and the first query head of the group. G is what
/// gradients are stored in.
template <typename T, typename G = T>
struct BackwardTask {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* out = nullptr;
  const T* dout = nullptr;
  const float* lse = nullptr;  ///< (group, lse_stride)
  G* dq = nullptr;
  G* dk_rows = nullptr;  ///< where dk and dv end up, rows kv_stride apart
  G* dv_rows = nullptr;
  float* dk = nullptr;  ///< where they are summed: (num_keys, padded(head_dim))
  float* dv = nullptr;
  std::size_t q_stride = 0;   ///< of q and dq
  std::size_t kv_stride = 0;  ///< of k, v and their gradients
  std::size_t out_stride = 0;
  std::size_t lse_stride = 0;
  std::size_t head_dim = 0;
  std::size_t query_offset = 0;  ///< the last key that query 0 sees; query i sees i more
  FirstKeys first_keys;          ///< of all queries
  AttentionScores scores = 1;
  std::size_t first_head = 0, end_head = 0;    ///< of the group
  std::size_t first_query = 0, end_query = 0;  ///< first_query is a tile's first
  std::size_t first_key = 0, end_key = 0;      ///< first_key is a tile's first
  bool queries = true;                         ///< compute dq
  bool keys_and_values = true;                 ///< compute dk and dv
  bool adds = false;                           ///< to what gradients hold; G is float
};

/// Where the operands of a whole call lie.
template <typename T, typename O = T>
struct ForwardOperands {
  const T* qkv = nullptr;  ///< (B, T, qkv_width), for its queries
  const T* k = nullptr;    ///< key head 0 of key 0 of sequence 0
  const T* v = nullptr;
  std::int64_t kv_stride = 0;        ///< from key to key
  std::int64_t kv_batch_stride = 0;  ///< from sequence to sequence
  O* out = nullptr;                  ///< (B, T, query_width)
  float* lse = nullptr;              ///< (B, num_heads, T) or null
  std::int64_t batch_rows = 0;       ///< T of these, of which a call may take fewer
  std::int64_t key_offset = 0;       ///< keys before that of the first query
  /// Keys that there are.
  std::int64_t num_keys = std::numeric_limits<std::int64_t>::max();
  std::int64_t window = 0;  ///< see ops::AttentionMask
  /// (B, T) or null.
  const std::int32_t* positions = nullptr;
  AttentionScores scores = 1;
  bool merges = false;  ///< see ForwardTask
};

/// Runs every block of queries of every head, in parallel, for B sequences of `num_rows` queries.
void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<float>& operands);
void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<Bf16>& operands);
void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<Bf16, float>& operands);

/// Where the operands of a whole backward call lie; as above where names are the same.
template <typename T, typename G = T>
struct BackwardOperands {
  HeadLayout heads;
  AttentionScores scores = 1;
  std::int64_t window = 0;
  const std::int32_t* positions = nullptr;
  const T* q = nullptr;  ///< (B, batch_rows, qkv_width), as dq
  const T* k = nullptr;
  const T* v = nullptr;
  const T* out = nullptr;  ///< (B, batch_rows, query_width), as dout
  const T* dout = nullptr;
  const float* lse = nullptr;  ///< (B, num_heads, batch_rows)
  G* dq = nullptr;
  G* dk = nullptr;  ///< as k
  G* dv = nullptr;
  float* scratch = nullptr;  ///< backward_tiles_scratch_bytes
  std::int64_t kv_stride = 0;
  std::int64_t kv_batch_stride = 0;
  std::int64_t batch_rows = 0;
  std::int64_t B = 0;
  std::int64_t num_queries = 0;
  std::int64_t num_keys = 0;
  std::int64_t key_offset = 0;
  bool adds = false;  ///< see BackwardTask
};

/// Runs the gradients of every head, in parallel.
void backward_tiles(Run& run, const BackwardOperands<float>& operands);
void backward_tiles(Run& run, const BackwardOperands<Bf16, float>& operands);
std::size_t backward_tiles_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                         std::int64_t num_keys);

}  // namespace atl::ops::cpu
