#include <algorithm>
#include <cmath>

#include "atoll/ops/cpu/attention.h"
#include "atoll/ops/cpu/attention_tiles.h"
#include "atoll/ops/documents.h"

// clang-format off
#include "atoll/ops/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/attention_forward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/attention_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// Turns a tile of scores (in units of log 2) into exp(score - running maximum) and moves the
// running maximum, the running sum and what `out` has so far to the new maximum.
HWY_INLINE void softmax_tile(const TileOfScores& tile, std::size_t D, Rows<float> scores,
                             Rows<float> out, float* max, float* sum) {
  const F32 d;
  for (std::size_t v = 0; v < tile.num_vecs(); ++v) {
    const std::size_t begin = tile.begin_row(v);
    const std::size_t end = tile.end_row(v);
    if (begin >= end) continue;
    float* column = scores.at(0, v * kLanes);
    if (tile.partial()) {
      for (std::size_t row = begin; row < end; ++row) {
        float* p = column + row * scores.stride;
        const Vf masked = hn::Set(d, kMaskedScore);
        hn::StoreU(hn::IfThenElse(tile.visible(row, v), hn::LoadU(d, p), masked), d, p);
      }
    }
    const Vf old_max = hn::LoadU(d, max + v * kLanes);
    Vf new_max = old_max;
    for (std::size_t row = begin; row < end; ++row) {
      new_max = hn::Max(new_max, hn::LoadU(d, column + row * scores.stride));
    }
    Vf tile_sum = hn::Zero(d);
    for (std::size_t row = begin; row < end; ++row) {
      float* p = column + row * scores.stride;
      const Vf e = exp2_lanes(hn::Sub(hn::LoadU(d, p), new_max));
      tile_sum = hn::Add(tile_sum, e);
      hn::StoreU(e, d, p);
    }
    const Vf shrink = exp2_lanes(hn::Sub(old_max, new_max));
    hn::StoreU(new_max, d, max + v * kLanes);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + v * kLanes), shrink, tile_sum), d, sum + v * kLanes);
    for (std::size_t i = 0; i < D; ++i) {
      float* p = out.at(i, v * kLanes);
      hn::StoreU(hn::Mul(hn::LoadU(d, p), shrink), d, p);
    }
  }
}

// One tile of queries against the keys from the first that any sees to the last of them (Dao et al.
// 2022, algorithm 1), with everything transposed: queries in lanes, keys and values read element by
// element where they are (or where they were widened).
template <class T>
void forward_tile(const ForwardTask<T>& task) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t num_vecs = (task.num_queries + kLanes - 1) / kLanes;
  HWY_ALIGN float q_buffer[kTileElements];
  HWY_ALIGN float out_buffer[kTileElements];
  HWY_ALIGN float score_buffer[kKeyTile * kMaxQueryTile];
  HWY_ALIGN float max[kMaxQueryTile];
  HWY_ALIGN float sum[kMaxQueryTile];
  HWY_ALIGN std::int32_t first_keys[kMaxQueryTile];
  RoomForKeys<T> k_room;
  RoomForKeys<T> v_room;
  const Rows<float> q = {q_buffer, ld};
  const Rows<float> out = {out_buffer, ld};
  const Rows<float> scores = {score_buffer, ld};
  pack_transposed(in_f32({task.q, task.q_stride}, task.num_queries, D, k_room.data),
                  task.num_queries, D, static_cast<float>(task.scale * kLog2E), num_vecs, q);
  std::fill_n(out_buffer, padded(D) * ld, 0.0F);
  std::fill_n(max, kMaxQueryTile, kHiddenScore);
  std::fill_n(sum, kMaxQueryTile, 0.0F);
  task.first_keys.fill(0, task.first_query, task.num_queries, first_keys);

  const std::size_t end_key = task.first_query + task.num_queries;
  for (auto key = static_cast<std::size_t>(first_keys[0]); key < end_key; key += kKeyTile) {
    const std::size_t num_keys = std::min(kKeyTile, end_key - key);
    const TileOfScores tile(key, num_keys, task.first_query, num_vecs, first_keys);
    const Rows<const float> k =
        in_f32({task.k + key * task.kv_stride, task.kv_stride}, num_keys, D, k_room.data);
    const Rows<const float> v =
        in_f32({task.v + key * task.kv_stride, task.kv_stride}, num_keys, D, v_room.data);
    tile.for_bands(
        [&](std::size_t row, std::size_t num_rows, std::size_t vec, std::size_t end_vec) HWY_ATTR {
          product(num_rows, end_vec - vec, D, {k.at(row, 0), k.stride, 1},
                  {q.at(0, vec * kLanes), ld}, {scores.at(row, vec * kLanes), ld}, false);
        });
    softmax_tile(tile, D, scores, out, max, sum);
    tile.for_bands(
        [&](std::size_t row, std::size_t num_rows, std::size_t vec, std::size_t end_vec) HWY_ATTR {
          product(D, end_vec - vec, num_rows, {v.at(row, 0), 1, v.stride},
                  {scores.at(row, vec * kLanes), ld}, {out.at(0, vec * kLanes), ld}, true);
        });
  }

  for (std::size_t i = 0; i < task.num_queries; ++i) {
    if (task.lse != nullptr) {
      task.lse[i] = max[i] * static_cast<float>(kLn2) + std::log(sum[i]);
    }
  }
  for (std::size_t i = 0; i < num_vecs * kLanes; ++i) sum[i] = 1.0F / sum[i];
  unpack_transposed(out, sum, task.num_queries, D, num_vecs, {task.out, task.out_stride},
                    k_room.data);
}

void ForwardTileF32(const ForwardTask<float>& task) {
  forward_tile(task);
}
void ForwardTileBf16(const ForwardTask<Bf16>& task) {
  forward_tile(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {
HWY_EXPORT(ForwardTileF32);
HWY_EXPORT(ForwardTileBf16);

void run_task(const ForwardTask<float>& task) {
  HWY_DYNAMIC_DISPATCH(ForwardTileF32)(task);
}
void run_task(const ForwardTask<Bf16>& task) {
  HWY_DYNAMIC_DISPATCH(ForwardTileBf16)(task);
}

template <typename T>
void run_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
               const ForwardOperands<T>& operands) {
  const auto tile = static_cast<std::int64_t>(query_tile(static_cast<std::size_t>(heads.head_dim)));
  const std::int64_t num_tiles = (num_rows + tile - 1) / tile;
  const std::int64_t num_pairs = B * heads.num_heads;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  run.threads().run(num_tiles * num_pairs, [&](std::int64_t index) {
    // The last tiles of a sequence see the most keys: they go first, so that no thread is left
    // with a long one at the end.
    const std::int64_t first = (num_tiles - 1 - index / num_pairs) * tile;
    const std::int64_t b = index % num_pairs / heads.num_heads;
    const std::int64_t h = index % heads.num_heads;
    const std::int64_t row = b * num_rows + first;
    const std::int64_t kv = b * operands.kv_batch_stride + h / group * heads.head_dim;
    ForwardTask<T> task;
    task.q = operands.qkv + row * heads.qkv_width() + h * heads.head_dim;
    task.q_stride = static_cast<std::size_t>(heads.qkv_width());
    task.k = operands.k + kv;
    task.v = operands.v + kv;
    task.kv_stride = static_cast<std::size_t>(operands.kv_stride);
    task.out = operands.out + row * heads.query_width() + h * heads.head_dim;
    task.out_stride = static_cast<std::size_t>(heads.query_width());
    if (operands.lse != nullptr)
      task.lse = operands.lse + (b * heads.num_heads + h) * num_rows + first;
    task.head_dim = static_cast<std::size_t>(heads.head_dim);
    task.num_queries = static_cast<std::size_t>(std::min(tile, num_rows - first));
    task.first_query = static_cast<std::size_t>(operands.past + first);
    task.first_keys.window = static_cast<std::size_t>(operands.window);
    if (operands.document_start != nullptr) {
      task.first_keys.document_start = operands.document_start + row;
    }
    task.scale = operands.scale;
    run_task(task);
  });
}

template <typename T>
void forward(Run& run, const HeadLayout& heads, double scale, const AttentionMask& mask,
             const Tensor& qkv, const Tensor& out, const Tensor& lse) {
  ForwardOperands<T> operands;
  operands.qkv = qkv.data<T>();
  operands.k = operands.qkv + heads.query_width();
  operands.v = operands.k + heads.kv_width();
  operands.kv_stride = heads.qkv_width();
  operands.kv_batch_stride = qkv.dim(1) * heads.qkv_width();
  operands.out = out.data<T>();
  operands.lse = lse.data<float>();
  operands.window = mask.window;
  operands.document_start = document_starts(mask.document_start);
  operands.scale = scale;
  run_tiles(run, qkv.dim(0), qkv.dim(1), heads, operands);
}

}  // namespace

void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<float>& operands) {
  run_tiles(run, B, num_rows, heads, operands);
}

void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<Bf16>& operands) {
  run_tiles(run, B, num_rows, heads, operands);
}

void attention_forward(Run& run, const HeadLayout& heads, double scale, const AttentionMask& mask,
                       Tensor qkv, Tensor out, Tensor lse) {
  if (qkv.dtype() == Dtype::kBf16) return forward<Bf16>(run, heads, scale, mask, qkv, out, lse);
  forward<float>(run, heads, scale, mask, qkv, out, lse);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
