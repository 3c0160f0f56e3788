// The queries of attention's backward pass, packed for its products. Compiled once per instruction
// set: include this after hwy/highway.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_ATTENTION_QUERIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_ATTENTION_QUERIES_INL_H_
#undef ATOLL_OPS_CPU_ATTENTION_QUERIES_INL_H_
#else
#define ATOLL_OPS_CPU_ATTENTION_QUERIES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "atoll/ops/attention/cpu_product-inl.h"
#include "atoll/ops/attention/cpu_tiles.h"
#include "atoll/ops/attention/cpu_transpose-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// Tiles of queries of one head, packed for the five products: transposed (queries in lanes) where
/// they meet keys and values, as rows where they add to dk and dv. Each tile of keys is read once
/// for all of them. 340 KiB, so it lives on the stack and in the second-level cache.
struct PackedQueries {
  HWY_ALIGN float q_columns[kBlockElements];
  HWY_ALIGN float dout_columns[kBlockElements];
  HWY_ALIGN float q_rows[kBlockElements];
  HWY_ALIGN float dout_rows[kBlockElements];
  HWY_ALIGN float dq_columns[kBlockElements];
  HWY_ALIGN float lse[kMaxQueryBlock];    // in units of log 2
  HWY_ALIGN float delta[kMaxQueryBlock];  // dout . out
  HWY_ALIGN std::int32_t first_keys[kMaxQueryBlock];
};

/// One of those tiles.
struct QueryTile {
  std::size_t first;  // query
  std::size_t num_queries;
  std::size_t num_vecs;
  float* q_columns;  // (D, query_tile(D)), as those that follow
  float* dout_columns;
  float* dq_columns;
  float* q_rows;  // (query_tile(D), padded(D))
  float* dout_rows;
  float* lse;
  float* delta;
  std::int32_t* first_keys;
};

/// Tile `index` of those that begin at query `first` and end before `end`.
HWY_INLINE QueryTile tile_of(PackedQueries& block, std::size_t D, std::size_t first,
                             std::size_t end, std::size_t index) {
  const std::size_t ld = query_tile(D);
  const std::size_t at = index * ld * padded(D);
  const std::size_t first_here = first + index * ld;
  const std::size_t num_queries = std::min(ld, end - first_here);
  return {first_here,
          num_queries,
          (num_queries + kLanes - 1) / kLanes,
          block.q_columns + at,
          block.dout_columns + at,
          block.dq_columns + at,
          block.q_rows + at,
          block.dout_rows + at,
          block.lse + index * kMaxQueryTile,
          block.delta + index * kMaxQueryTile,
          block.first_keys + index * kMaxQueryTile};
}

/// Fills a tile with queries of head `h` of the group: q, dout and their statistics; clears dq.
template <class T, class G>
HWY_INLINE void pack_queries(const BackwardTask<T, G>& task, std::size_t h, const QueryTile& tile) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t first = tile.first;
  const Rows<const T> out = {task.out + h * D + first * task.out_stride, task.out_stride};
  const Rows<const T> dout = {task.dout + h * D + first * task.out_stride, task.out_stride};
  const Rows<const float> q = gather_rows<T>(
      {task.q + h * D + first * task.q_stride, task.q_stride}, tile.num_queries, D, tile.q_rows);
  const Rows<const float> wide_dout = gather_rows(dout, tile.num_queries, D, tile.dout_rows);
  pack_transposed(q, tile.num_queries, D, query_factor(task.scores), tile.num_vecs,
                  {tile.q_columns, ld});
  pack_transposed(wide_dout, tile.num_queries, D, 1.0F, tile.num_vecs, {tile.dout_columns, ld});
  if (task.queries) std::fill_n(tile.dq_columns, D * ld, 0.0F);
  task.first_keys.fill(first, task.query_offset + first, tile.num_queries, tile.first_keys);
  std::fill_n(tile.lse, kMaxQueryTile, 0.0F);
  std::fill_n(tile.delta, kMaxQueryTile, 0.0F);
  for (std::size_t i = 0; i < tile.num_queries; ++i) {
    tile.lse[i] = task.lse[h * task.lse_stride + first + i] * static_cast<float>(kLog2E);
    const TwoSums sums = sum_lanes(D, [&](std::size_t c, auto lanes, TwoVectors& sum) HWY_ATTR {
      sum.first = hn::MulAdd(lanes.load(out.at(i, c)), lanes.load(dout.at(i, c)), sum.first);
    });
    tile.delta[i] = sums.first;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_ATTENTION_QUERIES_INL_H_
