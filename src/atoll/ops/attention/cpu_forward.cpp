#include <algorithm>
#include <cmath>
#include <type_traits>

#include "atoll/ops/attention/cpu.h"
#include "atoll/ops/attention/cpu_tiles.h"
#include "atoll/ops/positions.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/attention/cpu_forward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/attention/cpu_tile-inl.h"
#include "atoll/ops/attention/cpu_transpose-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// Takes the scores of a tile (in units of log 2) of which none is masked, and keeps the maximum of
// each query.
struct ScoresInto {
  Rows<float> c;
  float* max;

  HWY_INLINE ScoresInto from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}, max + v * kLanes};
  }
  HWY_INLINE Vf load(std::size_t v) const { return hn::LoadU(F32(), max + v * kLanes); }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, Vf& highest) const {
    highest = hn::Max(highest, sum);
    hn::StoreU(sum, F32(), p);
  }
  HWY_INLINE void save(std::size_t v, Vf highest) const {
    hn::StoreU(highest, F32(), max + v * kLanes);
  }
};

// What a row has so far: maximum and sum of exponentials, queries in lanes, and by how much the
// last tile shrank what came before it.
struct RunningSoftmax {
  HWY_ALIGN float max[kMaxQueryTile];
  HWY_ALIGN float sum[kMaxQueryTile];
  HWY_ALIGN float new_max[kMaxQueryTile];
  HWY_ALIGN float shrink[kMaxQueryTile];
};

// Turns a tile of scores into exp(score - maximum) and moves the running sum to the new maximum.
HWY_INLINE void softmax_tile(const TileOfScores& tile, Rows<float> scores, RunningSoftmax& rows) {
  const F32 d;
  for (std::size_t v = 0; v < tile.num_vecs(); ++v) {
    const std::size_t end = tile.end_row(v);
    const Vf new_max = hn::Load(d, rows.new_max + v * kLanes);
    Vf tile_sum = hn::Zero(d);
    for (std::size_t row = tile.begin_row(v); row < end; ++row) {
      float* p = scores.at(row, v * kLanes);
      const Vf e = exp2_lanes(hn::Sub(hn::LoadU(d, p), new_max));
      tile_sum = hn::Add(tile_sum, e);
      hn::StoreU(e, d, p);
    }
    const Vf shrink = exp2_lanes(hn::Sub(hn::Load(d, rows.max + v * kLanes), new_max));
    hn::Store(new_max, d, rows.max + v * kLanes);
    hn::Store(shrink, d, rows.shrink + v * kLanes);
    const Vf sum = hn::Load(d, rows.sum + v * kLanes);
    hn::Store(hn::MulAdd(sum, shrink, tile_sum), d, rows.sum + v * kLanes);
  }
}

// The scores of one tile of keys; `cap` as in score_cap.
HWY_INLINE void score_tile(const TileOfScores& tile, std::size_t D, Rows<const float> q,
                           Rows<const float> k, float cap, Rows<float> scores, RunningSoftmax& rows,
                           Ahead& ahead) {
  std::copy_n(rows.max, kMaxQueryTile, rows.new_max);
  if (!tile.partial() && cap == 0) {
    product(tile.num_keys(), tile.num_vecs(), D, {k.data, k.stride, 1}, q,
            ScoresInto{scores, rows.new_max}, ahead);
    return;
  }
  tile.for_bands([&](std::size_t row, std::size_t num_rows, std::size_t vec, std::size_t end_vec)
                     HWY_ATTR {
                       product(num_rows, end_vec - vec, D, {k.at(row, 0), k.stride, 1},
                               {q.at(0, vec * kLanes), q.stride},
                               StoreTo{{scores.at(row, vec * kLanes), scores.stride}}, ahead);
                       if (cap != 0) cap_scores(scores, row, num_rows, vec, end_vec, cap);
                       if (!tile.partial()) return;
                       tile.hide(scores, row, num_rows, vec, end_vec, kMaskedScore);
                     });
  const F32 d;
  for (std::size_t v = 0; v < tile.num_vecs(); ++v) {
    const std::size_t end = tile.end_row(v);
    Vf highest = hn::Load(d, rows.new_max + v * kLanes);
    for (std::size_t row = tile.begin_row(v); row < end; ++row) {
      highest = hn::Max(highest, hn::LoadU(d, scores.at(row, v * kLanes)));
    }
    hn::Store(highest, d, rows.new_max + v * kLanes);
  }
}

// out = shrink out + values * probabilities of one tile of keys, queries in lanes. A query that
// sees no key of the tile has a shrink of 1 and may be left out.
HWY_INLINE void attend_tile(const TileOfScores& tile, std::size_t D, Rows<const float> v,
                            Rows<float> probabilities, const float* shrink, Rows<float> out,
                            Ahead& ahead) {
  tile.for_panels(probabilities, [&](std::size_t row, std::size_t num_rows, std::size_t vec,
                                     std::size_t num_vecs) HWY_ATTR {
    product(D, num_vecs, num_rows, {v.at(row, 0), 1, v.stride},
            {probabilities.at(row, vec * kLanes), probabilities.stride},
            ScaleAndAddTo{{out.at(0, vec * kLanes), out.stride}, shrink + vec * kLanes}, ahead);
  });
}

// Where a row has seen no key its sum is 0, and its result is.
HWY_INLINE float inverse_sum(float sum) {
  return sum == 0 ? 0.0F : 1.0F / sum;
}

// Merges a tile of attended values with what other keys gave (Milakov & Gimelshein 2018): each
// weighs e^(its log-sum-exp - that of both).
HWY_INLINE void merge_tile(RunningSoftmax& rows, Rows<const float> columns, std::size_t num_queries,
                           std::size_t D, float* lse, Rows<float> out, float* room) {
  float keep[kMaxQueryTile];
  for (std::size_t q = 0; q < num_queries; ++q) {
    const float here = rows.max[q] * static_cast<float>(kLn2) + std::log(rows.sum[q]);
    const float before = lse[q];
    keep[q] = 1;
    rows.sum[q] = inverse_sum(rows.sum[q]);
    if (rows.sum[q] == 0) continue;
    const float higher = std::max(here, before);
    lse[q] = higher + std::log(std::exp(here - higher) + std::exp(before - higher));
    keep[q] = std::exp(before - lse[q]);
    rows.sum[q] *= std::exp(here - lse[q]);
  }
  merge_transposed(columns, rows.sum, keep, num_queries, D, out, room);
}

// Tiles of queries of one head with what they have attended to so far, queries in lanes.
struct QueryBlock {
  HWY_ALIGN float q[kBlockElements];
  HWY_ALIGN float out[kBlockElements];
  RunningSoftmax rows[kMaxBlockTiles];
  HWY_ALIGN std::int32_t first_keys[kMaxBlockTiles][kMaxQueryTile];
};

// One tile of queries and one of keys.
HWY_INLINE void forward_tile(const TileOfScores& tile, std::size_t D, Rows<const float> q,
                             Rows<const float> k, Rows<const float> v, float cap,
                             RunningSoftmax& rows, Rows<float> out, Ahead& ahead) {
  HWY_ALIGN float buffer[kKeyTile * kMaxQueryTile];
  const Rows<float> scores = {buffer, q.stride};
  score_tile(tile, D, q, k, cap, scores, rows, ahead);
  softmax_tile(tile, scores, rows);
  attend_tile(tile, D, v, scores, rows.shrink, out, ahead);
}

// A block of queries against the keys from the first that any sees to the last of them (Dao et al.
// 2022, algorithm 1), with everything transposed: queries in lanes, keys and values read element by
// element. Tiles of keys end at multiples of kKeyTile, so that no bit depends on the block.
template <class T, class O>
void forward_block(const ForwardTask<T, O>& task) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t size = ld * padded(D);
  const float cap = score_cap(task.scores);
  HWY_ALIGN float k_room[kKeyTile * kMaxTiledHeadDim];
  HWY_ALIGN float v_room[kKeyTile * kMaxTiledHeadDim];
  QueryBlock block;
  for (std::size_t first = 0, i = 0; first < task.num_queries; first += ld, ++i) {
    const std::size_t num_queries = std::min(ld, task.num_queries - first);
    const Rows<const T> rows = {task.q + first * task.q_stride, task.q_stride};
    pack_transposed(gather_rows(rows, num_queries, D, k_room), num_queries, D,
                    query_factor(task.scores), (num_queries + kLanes - 1) / kLanes,
                    {block.q + i * size, ld});
    task.first_keys.fill(first, task.first_query + first, num_queries, block.first_keys[i]);
    std::fill_n(block.out + i * size, size, 0.0F);
    std::fill_n(block.rows[i].max, kMaxQueryTile, kHiddenScore);
    std::fill_n(block.rows[i].sum, kMaxQueryTile, 0.0F);
  }

  Ahead ahead;
  ahead.set(2, task.out, task.out_stride, task.num_queries, D);
  const std::size_t end_key = std::min(task.num_keys, task.first_query + task.num_queries);
  const std::size_t first_key = task.first_keys.of(0, task.first_query);
  for (std::size_t key = first_key / kKeyTile * kKeyTile; key < end_key; key += kKeyTile) {
    const std::size_t num_keys = std::min(kKeyTile, end_key - key);
    const Rows<const T> keys = {task.k + key * task.kv_stride, task.kv_stride};
    const Rows<const T> values = {task.v + key * task.kv_stride, task.kv_stride};
    const Rows<const float> k = gather_rows(keys, num_keys, D, k_room);
    const Rows<const float> v = gather_rows(values, num_keys, D, v_room);
    const std::size_t num_next = std::min(kKeyTile, end_key - key - num_keys);
    ahead.set(0, keys.at(kKeyTile, 0), keys.stride, num_next, D);
    ahead.set(1, values.at(kKeyTile, 0), values.stride, num_next, D);
    for (std::size_t first = 0, i = 0; first < task.num_queries; first += ld, ++i) {
      const std::size_t num_queries = std::min(ld, task.num_queries - first);
      const std::size_t first_query = task.first_query + first;
      const std::size_t end_here = std::min(key + num_keys, first_query + num_queries);
      const std::size_t begin = std::max(key, static_cast<std::size_t>(block.first_keys[i][0]));
      if (begin >= end_here) continue;
      const TileOfScores tile(begin, end_here - begin, first_query,
                              (num_queries + kLanes - 1) / kLanes, block.first_keys[i]);
      forward_tile(tile, D, {block.q + i * size, ld}, {k.at(begin - key, 0), k.stride},
                   {v.at(begin - key, 0), v.stride}, cap, block.rows[i], {block.out + i * size, ld},
                   ahead);
    }
  }

  for (std::size_t first = 0, i = 0; first < task.num_queries; first += ld, ++i) {
    RunningSoftmax& rows = block.rows[i];
    const std::size_t num_queries = std::min(ld, task.num_queries - first);
    if constexpr (std::is_same_v<O, float>) {
      if (task.merges) {
        merge_tile(rows, {block.out + i * size, ld}, num_queries, D, task.lse + first,
                   {task.out + first * task.out_stride, task.out_stride}, k_room);
        continue;
      }
    }
    for (std::size_t q = 0; q < num_queries; ++q) {
      if (task.lse != nullptr) {
        task.lse[first + q] = rows.max[q] * static_cast<float>(kLn2) + std::log(rows.sum[q]);
      }
      rows.sum[q] = inverse_sum(rows.sum[q]);
    }
    unpack_transposed({block.out + i * size, ld}, rows.sum, num_queries, D,
                      {task.out + first * task.out_stride, task.out_stride}, k_room);
  }
}

void ForwardBlockF32(const ForwardTask<float>& task) {
  forward_block(task);
}
void ForwardBlockBf16(const ForwardTask<Bf16>& task) {
  forward_block(task);
}
void ForwardBlockBf16Sums(const ForwardTask<Bf16, float>& task) {
  forward_block(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {
HWY_EXPORT(ForwardBlockF32);
HWY_EXPORT(ForwardBlockBf16);
HWY_EXPORT(ForwardBlockBf16Sums);

void run_task(const ForwardTask<float>& task) {
  HWY_DYNAMIC_DISPATCH(ForwardBlockF32)(task);
}
void run_task(const ForwardTask<Bf16>& task) {
  HWY_DYNAMIC_DISPATCH(ForwardBlockBf16)(task);
}
void run_task(const ForwardTask<Bf16, float>& task) {
  HWY_DYNAMIC_DISPATCH(ForwardBlockBf16Sums)(task);
}

// As many as share each tile of keys, unless that leaves too few tasks to go around.
std::int64_t queries_per_task(std::int64_t num_rows, std::int64_t num_pairs,
                              const HeadLayout& heads, const ThreadPool& threads) {
  constexpr std::int64_t kTasksPerThread = 4;
  const auto D = static_cast<std::size_t>(heads.head_dim);
  const auto tile = static_cast<std::int64_t>(query_tile(D));
  auto block = static_cast<std::int64_t>(query_block(D));
  while (block > tile &&
         (num_rows + block - 1) / block * num_pairs < kTasksPerThread * threads.num_threads()) {
    block = block / 2 / tile * tile;
  }
  return block;
}

template <typename T, typename O>
void run_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
               const ForwardOperands<T, O>& operands) {
  const std::int64_t num_pairs = B * heads.num_heads;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t block = queries_per_task(num_rows, num_pairs, heads, run.threads());
  const std::int64_t num_blocks = (num_rows + block - 1) / block;
  run.threads().run(num_blocks * num_pairs, [&](std::int64_t index) {
    // Head after head, so that its keys and values stay in the second-level cache. The last queries
    // of a sequence see the most keys: they go first, so that no thread is left with a long task at
    // the end.
    const std::int64_t first = (num_blocks - 1 - index % num_blocks) * block;
    const std::int64_t b = index / num_blocks / heads.num_heads;
    const std::int64_t h = index / num_blocks % heads.num_heads;
    const std::int64_t row = b * operands.batch_rows + first;
    const std::int64_t kv = b * operands.kv_batch_stride + h / group * heads.head_dim;
    ForwardTask<T, O> task;
    task.q = operands.qkv + row * heads.qkv_width() + h * heads.head_dim;
    task.q_stride = static_cast<std::size_t>(heads.qkv_width());
    task.k = operands.k + kv;
    task.v = operands.v + kv;
    task.kv_stride = static_cast<std::size_t>(operands.kv_stride);
    task.out = operands.out + row * heads.query_width() + h * heads.head_dim;
    task.out_stride = static_cast<std::size_t>(heads.query_width());
    if (operands.lse != nullptr)
      task.lse = operands.lse + (b * heads.num_heads + h) * operands.batch_rows + first;
    task.head_dim = static_cast<std::size_t>(heads.head_dim);
    task.num_queries = static_cast<std::size_t>(std::min(block, num_rows - first));
    task.first_query = static_cast<std::size_t>(operands.key_offset + first);
    task.num_keys = static_cast<std::size_t>(operands.num_keys);
    task.first_keys.window = static_cast<std::size_t>(operands.window);
    if (operands.positions != nullptr) task.first_keys.positions = operands.positions + row;
    task.scores = operands.scores;
    task.merges = operands.merges;
    run_task(task);
  });
}

template <typename T>
void forward(Run& run, const HeadLayout& heads, AttentionScores scores, const AttentionMask& mask,
             const Tensor& qkv, const Tensor& out, const Tensor& lse) {
  ForwardOperands<T> operands;
  operands.qkv = qkv.data<T>();
  operands.k = operands.qkv + heads.query_width();
  operands.v = operands.k + heads.kv_width();
  operands.kv_stride = heads.qkv_width();
  operands.kv_batch_stride = qkv.dim(1) * heads.qkv_width();
  operands.out = out.data<T>();
  operands.lse = lse.data<float>();
  operands.batch_rows = qkv.dim(1);
  operands.window = mask.window;
  operands.positions = position_data(mask.positions);
  operands.scores = scores;
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

void forward_tiles(Run& run, std::int64_t B, std::int64_t num_rows, const HeadLayout& heads,
                   const ForwardOperands<Bf16, float>& operands) {
  run_tiles(run, B, num_rows, heads, operands);
}

void attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                       const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  if (qkv.dtype() == Dtype::kBf16) return forward<Bf16>(run, heads, scores, mask, qkv, out, lse);
  forward<float>(run, heads, scores, mask, qkv, out, lse);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
