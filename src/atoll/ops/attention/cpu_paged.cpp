#include "atoll/ops/attention/cpu_paged.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/ops/attention/cpu_tiles.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/attention/cpu_paged.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/attention/cpu_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// result[i] = q . k_i for kKeys rows of keys. A key's sum is the same however many there are.
template <int kKeys>
HWY_INLINE void paged_dots(const PagedTask& task, const float* q, const float* const* keys,
                           float* result) {
  Vf sum[kKeys];
  HWY_UNROLL(4)
  for (Vf& value : sum) value = hn::Zero(F32());
  for_lanes(task.head_dim, [&](std::size_t c, auto lanes) HWY_ATTR {
    const Vf qv = lanes.load(q + c);
    HWY_UNROLL(4)
    for (int i = 0; i < kKeys; ++i) sum[i] = hn::MulAdd(qv, lanes.load(keys[i] + c), sum[i]);
  });
  HWY_UNROLL(4)
  for (int i = 0; i < kKeys; ++i) {
    result[i] = task.factor * hn::GetLane(hn::SumOfLanes(F32(), sum[i]));
  }
}

// The scores of one query against `count` keys, in units of log 2, and a padding up to whole
// vectors that weighs nothing.
HWY_INLINE void paged_scores(const PagedTask& task, const float* q, const float* const* keys,
                             std::size_t count, float* scores) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) paged_dots<4>(task, q, keys + i, scores + i);
  for (; i < count; ++i) paged_dots<1>(task, q, keys + i, scores + i);
  if (task.cap != 0) {
    for_lanes(count, [&](std::size_t at, auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(hn::Set(F32(), task.cap), tanh_lanes(lanes.load(scores + at))),
                  scores + at);
    });
  }
  for (; i % kLanes != 0; ++i) scores[i] = kHiddenScore;
}

// out[c] = shrink out[c] + sum of weights[i] v_i[c], in the order of the keys, for kVecs vectors.
template <int kVecs, class Lanes>
HWY_INLINE void paged_sums(const float* weights, const float* const* values, std::size_t count,
                           std::size_t c, float shrink, float* out, Lanes lanes) {
  const F32 d;
  Vf sum[kVecs];
  HWY_UNROLL(4)
  for (int v = 0; v < kVecs; ++v) {
    sum[v] = hn::Mul(lanes.load(out + c + v * kLanes), hn::Set(d, shrink));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Vf weight = hn::Set(d, weights[i]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVecs; ++v) {
      sum[v] = hn::MulAdd(weight, lanes.load(values[i] + c + v * kLanes), sum[v]);
    }
  }
  HWY_UNROLL(4)
  for (int v = 0; v < kVecs; ++v) lanes.store(sum[v], out + c + v * kLanes);
}

HWY_INLINE void paged_values(const PagedTask& task, const float* weights,
                             const float* const* values, std::size_t count, float shrink,
                             float* out) {
  const std::size_t D = task.head_dim;
  std::size_t c = 0;
  for (; c + 4 * kLanes <= D; c += 4 * kLanes) {
    paged_sums<4>(weights, values, count, c, shrink, out, Whole{});
  }
  for (; c + kLanes <= D; c += kLanes) {
    paged_sums<1>(weights, values, count, c, shrink, out, Whole{});
  }
  if (c < D) paged_sums<1>(weights, values, count, c, shrink, out, Part{D - c});
}

// What a query has seen so far, beside its sums in `out`.
struct RunningSoftmax {
  float max = kHiddenScore;
  float sum = 0;

  // Scores become weights; returns what earlier sums shrink to.
  HWY_INLINE float take(float* scores, std::size_t count) {
    const F32 d;
    Vf most = hn::Set(d, max);
    for (std::size_t i = 0; i < count; i += kLanes) most = hn::Max(most, hn::Load(d, scores + i));
    most = hn::MaxOfLanes(d, most);
    Vf total = hn::Zero(d);
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Vf e = exp2_lanes(hn::Sub(hn::Load(d, scores + i), most));
      hn::Store(e, d, scores + i);
      total = hn::Add(total, e);
    }
    const float now = hn::GetLane(most);
    const float shrink = std::exp2(max - now);
    max = now;
    sum = sum * shrink + hn::GetLane(hn::SumOfLanes(d, total));
    return shrink;
  }
};

// Tiles of keys lie at multiples of kKeyTile, so that how a row's sums are cut depends on its
// position alone.
void PagedRowsOfHead(const PagedTask& task) {
  HWY_ALIGN float scores[kKeyTile];
  const float* keys[kKeyTile];
  const float* values[kKeyTile];
  std::vector<RunningSoftmax> softmax(static_cast<std::size_t>(task.num_rows) * task.num_heads);
  const auto tile_size = static_cast<std::int64_t>(kKeyTile);
  const std::int64_t end = task.position + task.num_rows;
  for (std::int64_t r = 0; r < task.num_rows; ++r) {
    std::fill_n(task.out + static_cast<std::size_t>(r) * task.out_stride,
                task.num_heads * task.head_dim, 0.0F);
  }
  for (std::int64_t tile = task.first_key(task.position) / tile_size * tile_size; tile < end;
       tile += tile_size) {
    const std::int64_t tile_end = std::min(tile + tile_size, end);
    const std::int64_t tile_begin = std::max(tile, task.first_key(task.position));
    for (std::int64_t at = tile_begin; at < tile_end; ++at) {
      const std::size_t place = task.place(at);
      keys[at - tile] = task.k + place;
      values[at - tile] = task.v + place;
    }
    for (std::int64_t r = 0; r < task.num_rows; ++r) {
      const std::int64_t position = task.position + r;
      const std::int64_t first = std::max(tile, task.first_key(position));
      const std::int64_t last = std::min(tile_end, position + 1);
      if (first >= last) continue;
      const auto count = static_cast<std::size_t>(last - first);
      for (std::size_t h = 0; h < task.num_heads; ++h) {
        const auto row = static_cast<std::size_t>(r);
        const std::size_t head = h * task.head_dim;
        float* out = task.out + row * task.out_stride + head;
        paged_scores(task, task.q + row * task.q_stride + head, keys + (first - tile), count,
                     scores);
        const float shrink = softmax[row * task.num_heads + h].take(scores, count);
        paged_values(task, scores, values + (first - tile), count, shrink, out);
      }
    }
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(task.num_rows); ++r) {
    for (std::size_t h = 0; h < task.num_heads; ++h) {
      float* out = task.out + r * task.out_stride + h * task.head_dim;
      const float inverse = 1.0F / softmax[r * task.num_heads + h].sum;
      for (std::size_t c = 0; c < task.head_dim; ++c) out[c] *= inverse;
      if (task.lse == nullptr) continue;
      const RunningSoftmax& seen = softmax[r * task.num_heads + h];
      task.lse[h * task.lse_stride + r] =
          static_cast<float>((seen.max + std::log2(seen.sum)) / kLog2E);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(PagedRowsOfHead);

void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse) {
  const std::int64_t D = heads.head_dim;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  PagedTask common;
  common.q_stride = static_cast<std::size_t>(heads.qkv_width());
  common.kv_stride = static_cast<std::size_t>(heads.kv_width());
  common.out_stride = static_cast<std::size_t>(heads.query_width());
  common.block_size = block_size;
  common.head_dim = static_cast<std::size_t>(D);
  common.num_heads = static_cast<std::size_t>(group);
  common.window = window;
  common.factor = query_factor(scores);
  common.cap = score_cap(scores);
  struct Piece {
    const PagedRows* rows;
    std::int64_t first;
  };
  std::vector<Piece> pieces;
  for (const PagedRows& rows : sequences) {
    for (std::int64_t at = 0; at < rows.num_rows; at += kPagedRows) pieces.push_back({&rows, at});
  }
  run.threads().run(std::ssize(pieces) * heads.num_kv_heads, [&](std::int64_t index) {
    const auto& [rows, first] = pieces[static_cast<std::size_t>(index / heads.num_kv_heads)];
    const std::int64_t kv_head = index % heads.num_kv_heads;
    const std::int64_t row = rows->first_row + first;
    PagedTask task = common;
    task.q = qkv.data<float>() + row * heads.qkv_width() + kv_head * group * D;
    task.k = k_cache.data<float>() + kv_head * D;
    task.v = v_cache.data<float>() + kv_head * D;
    task.out = out.data<float>() + row * heads.query_width() + kv_head * group * D;
    if (lse.defined()) {
      task.lse = lse.data<float>() + kv_head * group * qkv.dim(1) + row;
      task.lse_stride = static_cast<std::size_t>(qkv.dim(1));
    }
    task.blocks = rows->blocks.data();
    task.num_rows = std::min(kPagedRows, rows->num_rows - first);
    task.position = rows->first_position + first;
    HWY_DYNAMIC_DISPATCH(PagedRowsOfHead)(task);
  });
}

void attention_by_rows(Run& run, const HeadLayout& heads, AttentionScores scores,
                       std::int64_t window, Tensor qkv, Tensor out, Tensor lse) {
  const std::int64_t D = heads.head_dim;
  const std::int64_t T = qkv.dim(1);
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t pieces = (T + kPagedRows - 1) / kPagedRows;
  const std::int32_t only_block = 0;
  run.threads().run(qkv.dim(0) * pieces * heads.num_kv_heads, [&](std::int64_t index) {
    const std::int64_t kv_head = index % heads.num_kv_heads;
    const std::int64_t first = index / heads.num_kv_heads % pieces * kPagedRows;
    const std::int64_t b = index / heads.num_kv_heads / pieces;
    const float* const sequence = qkv.data<float>() + b * T * heads.qkv_width();
    const float* const keys = sequence + heads.query_width() + kv_head * D;
    PagedTask task;
    task.q = sequence + first * heads.qkv_width() + kv_head * group * D;
    task.k = keys;
    task.v = keys + heads.kv_width();
    task.out = out.data<float>() + (b * T + first) * heads.query_width() + kv_head * group * D;
    task.lse = lse.data<float>() + (b * heads.num_heads + kv_head * group) * T + first;
    task.lse_stride = static_cast<std::size_t>(T);
    task.q_stride = static_cast<std::size_t>(heads.qkv_width());
    task.kv_stride = task.q_stride;  // keys and values stay where they are
    task.out_stride = static_cast<std::size_t>(heads.query_width());
    task.blocks = &only_block;
    task.block_size = T;
    task.head_dim = static_cast<std::size_t>(D);
    task.num_heads = static_cast<std::size_t>(group);
    task.num_rows = std::min(kPagedRows, T - first);
    task.position = first;
    task.window = window;
    task.factor = query_factor(scores);
    task.cap = score_cap(scores);
    HWY_DYNAMIC_DISPATCH(PagedRowsOfHead)(task);
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
