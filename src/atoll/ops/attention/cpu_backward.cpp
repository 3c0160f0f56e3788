#include <algorithm>
#include <atomic>
#include <type_traits>

#include "atoll/ops/attention/cpu.h"
#include "atoll/ops/attention/cpu_tiles.h"
#include "atoll/ops/positions.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/attention/cpu_backward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/attention/cpu_queries-inl.h"
#include "atoll/ops/attention/cpu_tile-inl.h"
#include "atoll/ops/attention/cpu_transpose-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// Takes scores: P = exp(score - lse).
struct ProbabilitiesInto {
  Rows<float> c;
  const float* lse;

  HWY_INLINE ProbabilitiesInto from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}, lse + v * kLanes};
  }
  HWY_INLINE Vf load(std::size_t v) const { return hn::LoadU(F32(), lse + v * kLanes); }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, Vf row_lse) const {
    hn::StoreU(exp2_lanes(hn::Sub(sum, row_lse)), F32(), p);
  }
  HWY_INLINE void save(std::size_t, Vf) const {}
};

// Takes dP and puts dS = P (dP - delta) in the place of P.
struct DscoresInto {
  Rows<float> c;
  const float* delta;

  HWY_INLINE DscoresInto from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}, delta + v * kLanes};
  }
  HWY_INLINE Vf load(std::size_t v) const { return hn::LoadU(F32(), delta + v * kLanes); }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, Vf row_delta) const {
    hn::StoreU(hn::Mul(hn::LoadU(F32(), p), hn::Sub(sum, row_delta)), F32(), p);
  }
  HWY_INLINE void save(std::size_t, Vf) const {}
};

// Scores in units of the cap become probabilities, and `slopes` how each score grows with what it
// was before the cap.
HWY_INLINE void capped_probabilities(float cap, const float* lse, std::size_t num_rows,
                                     std::size_t num_vecs, Rows<float> scores, Rows<float> slopes) {
  const F32 d;
  for (std::size_t row = 0; row < num_rows; ++row) {
    for (std::size_t v = 0; v < num_vecs; ++v) {
      float* p = scores.at(row, v * kLanes);
      const Vf t = tanh_lanes(hn::LoadU(d, p));
      const Vf row_lse = hn::LoadU(d, lse + v * kLanes);
      hn::StoreU(exp2_lanes(hn::MulSub(hn::Set(d, cap), t, row_lse)), d, p);
      hn::StoreU(hn::NegMulAdd(t, t, hn::Set(d, 1.0F)), d, slopes.at(row, v * kLanes));
    }
  }
}

HWY_INLINE void multiply_by(Rows<const float> factors, std::size_t num_rows, std::size_t num_vecs,
                            Rows<float> values) {
  const F32 d;
  for (std::size_t row = 0; row < num_rows; ++row) {
    for (std::size_t v = 0; v < num_vecs; ++v) {
      float* p = values.at(row, v * kLanes);
      hn::StoreU(hn::Mul(hn::LoadU(d, p), hn::LoadU(d, factors.at(row, v * kLanes))), d, p);
    }
  }
}

// P, dV, dS and dK of a band of keys with the queries that see it; leaves dS in `scores`.
template <class T, class G>
HWY_INLINE void backward_band(const BackwardTask<T, G>& task, const TileOfScores& tile,
                              const QueryTile& queries, Rows<const float> keys,
                              Rows<const float> values, Rows<float> scores, Rows<float> slopes,
                              std::size_t row, std::size_t num_rows, std::size_t vec,
                              std::size_t end_vec, Ahead& ahead) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t row_size = padded(D);
  const std::size_t row_vecs = row_size / kLanes;
  const std::size_t num_vecs = end_vec - vec;
  const std::size_t skipped = vec * kLanes;
  const std::size_t num_queries = std::min(queries.num_queries, end_vec * kLanes) - skipped;
  const std::size_t key = tile.first_key() + row;
  const Rows<float> p = {scores.at(row, skipped), ld};
  const float cap = score_cap(task.scores);
  const Left band_keys = {keys.at(row, 0), keys.stride, 1};
  const Rows<const float> columns = {queries.q_columns + skipped, ld};
  if (cap == 0) {
    product(num_rows, num_vecs, D, band_keys, columns, ProbabilitiesInto{p, queries.lse + skipped},
            ahead);
  } else {
    product(num_rows, num_vecs, D, band_keys, columns, StoreTo{p}, ahead);
    capped_probabilities(cap, queries.lse + skipped, num_rows, num_vecs, p, slopes);
  }
  if (tile.partial()) tile.hide(scores, row, num_rows, vec, end_vec, 0.0F);
  if (task.keys_and_values) {
    product(num_rows, row_vecs, num_queries, {p.data, ld, 1},
            {queries.dout_rows + skipped * row_size, row_size},
            AddTo{{task.dv + key * row_size, row_size}}, ahead);
  }
  product(num_rows, num_vecs, D, {values.at(row, 0), values.stride, 1},
          {queries.dout_columns + skipped, ld}, DscoresInto{p, queries.delta + skipped}, ahead);
  if (cap != 0) multiply_by({slopes.data, slopes.stride}, num_rows, num_vecs, p);
  // Again, for where dP is no number.
  if (tile.partial()) tile.hide(scores, row, num_rows, vec, end_vec, 0.0F);
  if (task.keys_and_values) {
    product(num_rows, row_vecs, num_queries, {p.data, ld, 1},
            {queries.q_rows + skipped * row_size, row_size},
            AddTo{{task.dk + key * row_size, row_size}}, ahead);
  }
}

// All five products of one tile of keys with one tile of queries.
template <class T, class G>
HWY_INLINE void backward_tile(const BackwardTask<T, G>& task, const QueryTile& queries,
                              std::size_t key, std::size_t num_keys, Rows<const float> keys,
                              Rows<const float> values, Rows<float> scores, Rows<float> slopes,
                              Ahead& ahead) {
  const TileOfScores tile(key, num_keys, task.query_offset + queries.first, queries.num_vecs,
                          queries.first_keys);
  tile.for_bands([&](std::size_t row, std::size_t num_rows, std::size_t vec, std::size_t end_vec)
                     HWY_ATTR {
                       backward_band(task, tile, queries, keys, values, scores, slopes, row,
                                     num_rows, vec, end_vec, ahead);
                     });
  if (!task.queries) return;
  tile.for_panels(scores, [&](std::size_t row, std::size_t num_rows, std::size_t vec,
                              std::size_t num_vecs) HWY_ATTR {
    product(task.head_dim, num_vecs, num_rows, {keys.at(row, 0), 1, keys.stride},
            {scores.at(row, vec * kLanes), scores.stride},
            AddTo{{queries.dq_columns + vec * kLanes, query_tile(task.head_dim)}}, ahead);
  });
}

// The queries [first, end) of one head, at most query_block(D) of them.
template <class T, class G>
HWY_INLINE void backward_block(const BackwardTask<T, G>& task, std::size_t h, std::size_t first,
                               std::size_t end, std::size_t begin_key, PackedQueries& block) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t num_tiles = (end - first + ld - 1) / ld;
  HWY_ALIGN float k_room[kKeyTile * kMaxTiledHeadDim];
  HWY_ALIGN float v_room[kKeyTile * kMaxTiledHeadDim];
  HWY_ALIGN float scores[kKeyTile * kMaxQueryTile];
  HWY_ALIGN float slopes[kKeyTile * kMaxQueryTile];  // of capped scores
  for (std::size_t i = 0; i < num_tiles; ++i) {
    pack_queries(task, h, tile_of(block, D, first, end, i));
  }
  Ahead ahead;
  if (task.queries) {
    ahead.set(2, task.dq + h * D + first * task.q_stride, task.q_stride, end - first, D);
  }
  const std::size_t num_next = std::min(query_block(D), task.end_query - end);
  ahead.set(3, task.q + h * D + end * task.q_stride, task.q_stride, num_next, D);
  ahead.set(4, task.dout + h * D + end * task.out_stride, task.out_stride, num_next, D);
  ahead.set(5, task.out + h * D + end * task.out_stride, task.out_stride, num_next, D);
  const std::size_t end_key = std::min(task.end_key, task.query_offset + end);
  for (std::size_t key = begin_key; key < end_key; key += kKeyTile) {
    const std::size_t num_keys = std::min(kKeyTile, end_key - key);
    const std::size_t at = key * task.kv_stride;
    const Rows<const T> k = {task.k + at, task.kv_stride};
    const Rows<const T> v = {task.v + at, task.kv_stride};
    const Rows<const float> keys = gather_rows(k, num_keys, D, k_room);
    const Rows<const float> values = gather_rows(v, num_keys, D, v_room);
    const std::size_t num_later = std::min(kKeyTile, end_key - key - num_keys);
    ahead.set(0, k.at(kKeyTile, 0), k.stride, num_later, D);
    ahead.set(1, v.at(kKeyTile, 0), v.stride, num_later, D);
    for (std::size_t i = 0; i < num_tiles; ++i) {
      const QueryTile tile = tile_of(block, D, first, end, i);
      const std::size_t end_seen = task.query_offset + tile.first + tile.num_queries;
      const std::size_t end_here = std::min(key + num_keys, end_seen);
      const std::size_t begin = std::max(key, static_cast<std::size_t>(tile.first_keys[0]));
      if (begin >= end_here) continue;
      backward_tile(task, tile, begin, end_here - begin, {keys.at(begin - key, 0), keys.stride},
                    {values.at(begin - key, 0), values.stride}, {scores, ld}, {slopes, ld}, ahead);
    }
  }
  if (!task.queries) return;
  float factor[kMaxQueryTile], ones[kMaxQueryTile];
  std::fill_n(factor, kMaxQueryTile, static_cast<float>(task.scores.scale));
  std::fill_n(ones, kMaxQueryTile, 1.0F);
  for (std::size_t i = 0; i < num_tiles; ++i) {
    const QueryTile tile = tile_of(block, D, first, end, i);
    const Rows<G> dq = {task.dq + h * D + tile.first * task.q_stride, task.q_stride};
    if constexpr (std::is_same_v<G, float>) {
      if (task.adds) {
        merge_transposed({tile.dq_columns, ld}, factor, ones, tile.num_queries, D, dq,
                         tile.q_columns);
        continue;
      }
    }
    unpack_transposed({tile.dq_columns, ld}, factor, tile.num_queries, D, dq, tile.q_columns);
  }
}

// Gradients of a range of queries, of a range of keys, or of both (see BackwardTask). Every sum
// runs over heads, tiles of queries and tiles of keys in ascending order. Tiles end at multiples of
// their size, whatever the ranges, and so give the same bits.
template <class T, class G>
void backward_range(const BackwardTask<T, G>& task) {
  const std::size_t D = task.head_dim;
  if (task.keys_and_values) {
    const std::size_t begin = task.first_key * padded(D);
    const std::size_t size = (task.end_key - task.first_key) * padded(D);
    std::fill_n(task.dk + begin, size, 0.0F);
    std::fill_n(task.dv + begin, size, 0.0F);
  }
  PackedQueries block;
  for (std::size_t h = task.first_head; h < task.end_head; ++h) {
    for (std::size_t first = task.first_query; first < task.end_query; first += query_block(D)) {
      const std::size_t first_key = task.first_keys.of(first, task.query_offset + first);
      const std::size_t seen = first_key / kKeyTile * kKeyTile;
      const std::size_t begin_key = std::max(task.first_key, seen);
      if (begin_key >= task.end_key) break;  // later queries begin later still
      const std::size_t end = std::min(task.end_query, first + query_block(D));
      backward_block(task, h, first, end, begin_key, block);
    }
  }
  if (task.keys_and_values) {
    constexpr std::size_t kRowsAhead = 8;
    const F32 d;
    const Vf scale = hn::Set(d, static_cast<float>(task.scores.scale));
    for (std::size_t key = task.first_key; key < task.end_key; ++key) {
      const float* dk = task.dk + key * padded(D);
      const float* dv = task.dv + key * padded(D);
      G* dk_row = task.dk_rows + key * task.kv_stride;
      G* dv_row = task.dv_rows + key * task.kv_stride;
      for (std::size_t i = 0; i < D; i += 64 / sizeof(G)) {
        __builtin_prefetch(dk_row + kRowsAhead * task.kv_stride + i, 0, 2);
        __builtin_prefetch(dv_row + kRowsAhead * task.kv_stride + i, 0, 2);
      }
      if constexpr (std::is_same_v<G, float>) {
        if (task.adds) {
          for_lanes(D, [&](std::size_t c, auto lanes) HWY_ATTR {
            lanes.store(hn::MulAdd(lanes.load(dk + c), scale, lanes.load(dk_row + c)), dk_row + c);
            lanes.store(hn::Add(lanes.load(dv + c), lanes.load(dv_row + c)), dv_row + c);
          });
          continue;
        }
      }
      for_lanes(D, [&](std::size_t c, auto lanes) HWY_ATTR {
        lanes.store(hn::Mul(lanes.load(dk + c), scale), dk_row + c);
        lanes.store(lanes.load(dv + c), dv_row + c);
      });
    }
  }
}

void BackwardRangeF32(const BackwardTask<float>& task) {
  backward_range(task);
}
void BackwardRangeBf16(const BackwardTask<Bf16>& task) {
  backward_range(task);
}
void BackwardRangeBf16Sums(const BackwardTask<Bf16, float>& task) {
  backward_range(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(BackwardRangeF32);
HWY_EXPORT(BackwardRangeBf16);
HWY_EXPORT(BackwardRangeBf16Sums);

void run_task(const BackwardTask<float>& task) {
  HWY_DYNAMIC_DISPATCH(BackwardRangeF32)(task);
}
void run_task(const BackwardTask<Bf16>& task) {
  HWY_DYNAMIC_DISPATCH(BackwardRangeBf16)(task);
}
void run_task(const BackwardTask<Bf16, float>& task) {
  HWY_DYNAMIC_DISPATCH(BackwardRangeBf16Sums)(task);
}

// Keys per task of the split backward pass: each task packs every later query once.
constexpr std::int64_t kKeysPerTask = 4 * kKeyTile;

// One sweep per (sequence, key-value head) does five products per tile. When there are too few of
// those for the threads, two sweeps cut by keys and by queries do seven, but feed any number of
// threads.
bool one_sweep(std::int64_t num_pairs, std::int64_t num_threads) {
  const std::int64_t rounds = (num_pairs + num_threads - 1) / num_threads;
  return 5 * rounds * num_threads <= 7 * num_pairs;
}

// The task of pair `index`, a sequence and a key-value head, which sums dk and dv in region `slot`
// of the scratch. It covers all queries and keys.
template <typename T, typename G>
BackwardTask<T, G> task_of(const BackwardOperands<T, G>& o, std::int64_t index, std::int64_t slot) {
  const std::int64_t D = o.heads.head_dim;
  const std::int64_t group = o.heads.num_heads / o.heads.num_kv_heads;
  const std::int64_t b = index / o.heads.num_kv_heads;
  const std::int64_t kv_head = index % o.heads.num_kv_heads;
  const std::int64_t q = b * o.batch_rows * o.heads.qkv_width() + kv_head * group * D;
  const std::int64_t kv = b * o.kv_batch_stride + kv_head * D;
  const std::int64_t attended = b * o.batch_rows * o.heads.query_width() + kv_head * group * D;
  const auto row_size = static_cast<std::int64_t>(padded(static_cast<std::size_t>(D)));
  BackwardTask<T, G> task;
  task.q = o.q + q;
  task.k = o.k + kv;
  task.v = o.v + kv;
  task.out = o.out + attended;
  task.dout = o.dout + attended;
  task.lse = o.lse + (b * o.heads.num_heads + kv_head * group) * o.batch_rows;
  task.dq = o.dq + q;
  task.dk_rows = o.dk + kv;
  task.dv_rows = o.dv + kv;
  task.dk = o.scratch + slot * 2 * o.num_keys * row_size;
  task.dv = task.dk + o.num_keys * row_size;
  task.q_stride = static_cast<std::size_t>(o.heads.qkv_width());
  task.kv_stride = static_cast<std::size_t>(o.kv_stride);
  task.out_stride = static_cast<std::size_t>(o.heads.query_width());
  task.lse_stride = static_cast<std::size_t>(o.batch_rows);
  task.head_dim = static_cast<std::size_t>(D);
  task.query_offset = static_cast<std::size_t>(o.key_offset);
  task.first_keys.window = static_cast<std::size_t>(o.window);
  if (o.positions != nullptr) task.first_keys.positions = o.positions + b * o.batch_rows;
  task.scores = o.scores;
  task.end_head = static_cast<std::size_t>(group);
  task.end_query = static_cast<std::size_t>(o.num_queries);
  task.end_key = static_cast<std::size_t>(o.num_keys);
  task.adds = o.adds;
  return task;
}

// The number of threads chooses between the two, which is allowed only because both add up every
// gradient in the same order and so give the same bits.
template <typename T, typename G>
void run_ranges(Run& run, const BackwardOperands<T, G>& operands) {
  const HeadLayout& heads = operands.heads;
  const std::int64_t num_pairs = operands.B * heads.num_kv_heads;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  if (one_sweep(num_pairs, run.threads().num_threads())) {
    // As many regions of scratch as threads, not pairs: they stay in the caches.
    std::atomic<std::int64_t> next{0};
    run.threads().run(std::min<std::int64_t>(run.threads().num_threads(), num_pairs),
                      [&](std::int64_t slot) {
                        for (std::int64_t index = next++; index < num_pairs; index = next++) {
                          run_task(task_of(operands, index, slot));
                        }
                      });
    return;
  }
  const std::int64_t num_keys = operands.num_keys;
  const std::int64_t key_tasks = (num_keys + kKeysPerTask - 1) / kKeysPerTask;
  run.threads().run(key_tasks * num_pairs, [&](std::int64_t index) {
    BackwardTask<T, G> task = task_of(operands, index % num_pairs, index % num_pairs);
    task.queries = false;
    // The first keys are seen by the most queries, so the longest tasks go first.
    const std::int64_t first = index / num_pairs * kKeysPerTask;
    task.first_key = static_cast<std::size_t>(first);
    task.end_key = static_cast<std::size_t>(std::min(num_keys, first + kKeysPerTask));
    const std::size_t tile = query_tile(task.head_dim);
    const std::size_t seen_by_all = std::min(task.query_offset, task.first_key);
    task.first_query = (task.first_key - seen_by_all) / tile * tile;
    run_task(task);
  });
  const auto tile = static_cast<std::int64_t>(query_tile(static_cast<std::size_t>(heads.head_dim)));
  const std::int64_t query_tasks = (operands.num_queries + tile - 1) / tile;
  run.threads().run(query_tasks * num_pairs * group, [&](std::int64_t index) {
    BackwardTask<T, G> task = task_of(operands, index % num_pairs, index % num_pairs);
    task.keys_and_values = false;
    task.first_head = static_cast<std::size_t>(index / num_pairs % group);
    task.end_head = task.first_head + 1;
    const std::int64_t first = (query_tasks - 1 - index / num_pairs / group) * tile;
    task.first_query = static_cast<std::size_t>(first);
    task.end_query = static_cast<std::size_t>(std::min(operands.num_queries, first + tile));
    run_task(task);
  });
}

template <typename T>
void backward(Run& run, const HeadLayout& heads, AttentionScores scores, const AttentionMask& mask,
              const Tensor& qkv, const Tensor& out, const Tensor& lse, const Tensor& dout,
              const Tensor& dqkv, float* scratch) {
  BackwardOperands<T> operands;
  operands.heads = heads;
  operands.scores = scores;
  operands.window = mask.window;
  operands.positions = position_data(mask.positions);
  operands.q = qkv.data<T>();
  operands.k = operands.q + heads.query_width();
  operands.v = operands.k + heads.kv_width();
  operands.out = out.data<T>();
  operands.dout = dout.data<T>();
  operands.lse = lse.data<float>();
  operands.dq = dqkv.data<T>();
  operands.dk = operands.dq + heads.query_width();
  operands.dv = operands.dk + heads.kv_width();
  operands.scratch = scratch;
  operands.kv_stride = heads.qkv_width();
  operands.kv_batch_stride = qkv.dim(1) * heads.qkv_width();
  operands.batch_rows = qkv.dim(1);
  operands.B = qkv.dim(0);
  operands.num_queries = operands.num_keys = qkv.dim(1);
  run_ranges(run, operands);
}

}  // namespace

void backward_tiles(Run& run, const BackwardOperands<float>& operands) {
  run_ranges(run, operands);
}

void backward_tiles(Run& run, const BackwardOperands<Bf16, float>& operands) {
  run_ranges(run, operands);
}

std::size_t backward_tiles_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                         std::int64_t num_keys) {
  const auto row_size = static_cast<std::int64_t>(padded(static_cast<std::size_t>(heads.head_dim)));
  return align_up(Spec{Dtype::kF32, {B * heads.num_kv_heads, 2, num_keys, row_size}}.bytes());
}

std::size_t attention_backward_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  return backward_tiles_scratch_bytes(heads, qkv.shape.dim(0), qkv.shape.dim(1));
}

void attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                        const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse, Tensor dout,
                        Tensor dqkv) {
  const std::size_t bytes = attention_backward_scratch_bytes(heads, qkv.spec());
  Run inner = run;
  const Tensor scratch = inner.take_scratch({Dtype::kU8, {static_cast<std::int64_t>(bytes)}});
  auto* sums = static_cast<float*>(scratch.raw());
  if (qkv.dtype() == Dtype::kBf16) {
    return backward<Bf16>(run, heads, scores, mask, qkv, out, lse, dout, dqkv, sums);
  }
  backward<float>(run, heads, scores, mask, qkv, out, lse, dout, dqkv, sums);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
