#include <algorithm>

#include "atoll/ops/cpu/attention.h"
#include "atoll/ops/cpu/attention_tiles.h"
#include "atoll/ops/documents.h"

// clang-format off
#include "atoll/ops/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/attention_backward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/attention_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// One tile of queries, packed for the five products: transposed (queries in lanes) where they meet
// keys and values, as rows where they add to dk and dv. 192 KiB, so it lives on the stack.
struct QueryTile {
  HWY_ALIGN float q_columns[kTileElements];
  HWY_ALIGN float dout_columns[kTileElements];
  HWY_ALIGN float q_rows[kTileElements];
  HWY_ALIGN float dout_rows[kTileElements];
  HWY_ALIGN float dq_columns[kTileElements];
  HWY_ALIGN float probabilities[kKeyTile * kMaxQueryTile];
  HWY_ALIGN float dscores[kKeyTile * kMaxQueryTile];
  HWY_ALIGN float lse[kMaxQueryTile];    // in units of log 2
  HWY_ALIGN float delta[kMaxQueryTile];  // dout . out
  HWY_ALIGN std::int32_t first_keys[kMaxQueryTile];
  std::size_t num_queries;
  std::size_t num_vecs;
};

// Where rows that are not f32 are widened: 192 KiB more.
template <class T>
struct Rooms {
  RoomForQueries<T> q;
  RoomForQueries<T> dout;
  RoomForKeys<T> k;
  RoomForKeys<T> v;
};

// to (num_rows, padded(D)) = from (num_rows, D), zero in the padding.
HWY_INLINE void pack_rows(Rows<const float> from, std::size_t num_rows, std::size_t D,
                          Rows<float> to) {
  for (std::size_t row = 0; row < num_rows; ++row) {
    std::memcpy(to.at(row, 0), from.at(row, 0), D * sizeof(float));
    std::fill_n(to.at(row, D), to.stride - D, 0.0F);
  }
}

template <class T>
HWY_INLINE void pack_queries(const BackwardTask<T>& task, std::size_t h, std::size_t first,
                             QueryTile& tile, Rooms<T>& rooms) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const Rows<const T> out = {task.out + h * D + first * task.out_stride, task.out_stride};
  tile.num_queries = std::min(ld, task.num_rows - first);
  const Rows<const float> q = in_f32({task.q + h * D + first * task.qkv_stride, task.qkv_stride},
                                     tile.num_queries, D, rooms.q.data);
  const Rows<const float> dout =
      in_f32({task.dout + h * D + first * task.out_stride, task.out_stride}, tile.num_queries, D,
             rooms.dout.data);
  tile.num_vecs = (tile.num_queries + kLanes - 1) / kLanes;
  pack_transposed(q, tile.num_queries, D, static_cast<float>(task.scale * kLog2E), tile.num_vecs,
                  {tile.q_columns, ld});
  pack_transposed(dout, tile.num_queries, D, 1.0F, tile.num_vecs, {tile.dout_columns, ld});
  if (task.keys_and_values) {
    pack_rows(q, tile.num_queries, D, {tile.q_rows, padded(D)});
    pack_rows(dout, tile.num_queries, D, {tile.dout_rows, padded(D)});
  }
  if (task.queries) std::fill_n(tile.dq_columns, padded(D) * ld, 0.0F);
  task.first_keys.fill(first, first, tile.num_queries, tile.first_keys);
  std::fill_n(tile.lse, kMaxQueryTile, 0.0F);
  std::fill_n(tile.delta, kMaxQueryTile, 0.0F);
  for (std::size_t i = 0; i < tile.num_queries; ++i) {
    tile.lse[i] = task.lse[h * task.num_rows + first + i] * static_cast<float>(kLog2E);
    const TwoSums sums = sum_lanes(D, [&](std::size_t c, auto lanes, TwoVectors& sum) HWY_ATTR {
      sum.first = hn::MulAdd(lanes.load(out.at(i, c)), lanes.load(dout.at(i, c)), sum.first);
    });
    tile.delta[i] = sums.first;
  }
}

// For a band of keys: scores -> P = exp(score - lse) and dP -> dS = P (dP - delta), both zero where
// a query does not see the key.
HWY_INLINE void softmax_gradient(const TileOfScores& tile, std::size_t first_row,
                                 std::size_t num_rows, std::size_t first_vec, std::size_t end_vec,
                                 std::size_t ld, QueryTile& queries) {
  const F32 d;
  for (std::size_t v = first_vec; v < end_vec; ++v) {
    const Vf lse = hn::Load(d, queries.lse + v * kLanes);
    const Vf delta = hn::Load(d, queries.delta + v * kLanes);
    for (std::size_t row = first_row; row < first_row + num_rows; ++row) {
      float* p = queries.probabilities + row * ld + v * kLanes;
      float* ds = queries.dscores + row * ld + v * kLanes;
      // A score is below its row's lse except by rounding, and exp2_lanes takes x <= 0 only.
      const Vf x = hn::Min(hn::Zero(d), hn::Sub(hn::Load(d, p), lse));
      Vf probability = exp2_lanes(x);
      Vf dscore = hn::Mul(probability, hn::Sub(hn::Load(d, ds), delta));
      if (tile.partial()) {
        const auto visible = tile.visible(row, v);
        probability = hn::IfThenElseZero(visible, probability);
        dscore = hn::IfThenElseZero(visible, dscore);
      }
      hn::Store(probability, d, p);
      hn::Store(dscore, d, ds);
    }
  }
}

// All five products of one tile of keys with one tile of queries.
template <class T>
HWY_INLINE void backward_tile(const BackwardTask<T>& task, const TileOfScores& tile,
                              std::size_t num_keys, QueryTile& queries, Rooms<T>& rooms) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  const std::size_t row_size = padded(D);
  const std::size_t row_vecs = row_size / kLanes;
  const std::size_t first_key = tile.first_key() * task.qkv_stride;
  const Rows<const float> keys =
      in_f32({task.k + first_key, task.qkv_stride}, num_keys, D, rooms.k.data);
  const Rows<const float> values =
      in_f32({task.v + first_key, task.qkv_stride}, num_keys, D, rooms.v.data);
  tile.for_bands(
      [&](std::size_t row, std::size_t num_rows, std::size_t vec, std::size_t end_vec) HWY_ATTR {
        const std::size_t num_vecs = end_vec - vec;
        const std::size_t skipped = vec * kLanes;
        const std::size_t num_queries = std::min(queries.num_queries, end_vec * kLanes) - skipped;
        const std::size_t key = tile.first_key() + row;
        const float* k = keys.at(row, 0);
        const float* v = values.at(row, 0);
        float* p = queries.probabilities + row * ld + skipped;
        float* ds = queries.dscores + row * ld + skipped;
        product(num_rows, num_vecs, D, {k, keys.stride, 1}, {queries.q_columns + skipped, ld},
                {p, ld}, false);
        product(num_rows, num_vecs, D, {v, values.stride, 1}, {queries.dout_columns + skipped, ld},
                {ds, ld}, false);
        softmax_gradient(tile, row, num_rows, vec, end_vec, ld, queries);
        if (task.keys_and_values) {
          product(num_rows, row_vecs, num_queries, {p, ld, 1},
                  {queries.dout_rows + skipped * row_size, row_size},
                  {task.dv + key * row_size, row_size}, true);
          product(num_rows, row_vecs, num_queries, {ds, ld, 1},
                  {queries.q_rows + skipped * row_size, row_size},
                  {task.dk + key * row_size, row_size}, true);
        }
        if (task.queries) {
          product(D, num_vecs, num_rows, {k, 1, keys.stride}, {ds, ld},
                  {queries.dq_columns + skipped, ld}, true);
        }
      });
}

// Gradients of a range of queries, of a range of keys, or of both (see BackwardTask). Every sum
// runs over heads, tiles of queries and tiles of keys in ascending order, whatever the ranges.
template <class T>
void backward_range(const BackwardTask<T>& task) {
  const std::size_t D = task.head_dim;
  const std::size_t ld = query_tile(D);
  if (task.keys_and_values) {
    const std::size_t begin = task.first_key * padded(D);
    const std::size_t size = (task.end_key - task.first_key) * padded(D);
    std::fill_n(task.dk + begin, size, 0.0F);
    std::fill_n(task.dv + begin, size, 0.0F);
  }
  QueryTile queries;
  Rooms<T> rooms;
  float factor[kMaxQueryTile];
  for (std::size_t h = task.first_head; h < task.end_head; ++h) {
    for (std::size_t first = task.first_query; first < task.end_query; first += ld) {
      const std::size_t begin_key = std::max(task.first_key, task.first_keys.of(first, first));
      if (begin_key >= task.end_key) break;  // later queries begin later still
      pack_queries(task, h, first, queries, rooms);
      const std::size_t end_key = std::min(task.end_key, first + queries.num_queries);
      for (std::size_t key = begin_key; key < end_key; key += kKeyTile) {
        const std::size_t num_keys = std::min(kKeyTile, end_key - key);
        backward_tile(task, {key, num_keys, first, queries.num_vecs, queries.first_keys}, num_keys,
                      queries, rooms);
      }
      if (task.queries) {
        std::fill_n(factor, kMaxQueryTile, static_cast<float>(task.scale));
        unpack_transposed(
            {queries.dq_columns, ld}, factor, queries.num_queries, D, queries.num_vecs,
            {task.dq + h * D + first * task.qkv_stride, task.qkv_stride}, rooms.q.data);
      }
    }
  }
  if (task.keys_and_values) {
    const F32 d;
    const Vf scale = hn::Set(d, static_cast<float>(task.scale));
    for (std::size_t key = task.first_key; key < task.end_key; ++key) {
      const float* dk = task.dk + key * padded(D);
      const float* dv = task.dv + key * padded(D);
      T* dk_row = task.dk_rows + key * task.qkv_stride;
      T* dv_row = task.dv_rows + key * task.qkv_stride;
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

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(BackwardRangeF32);
HWY_EXPORT(BackwardRangeBf16);

void run_task(const BackwardTask<float>& task) {
  HWY_DYNAMIC_DISPATCH(BackwardRangeF32)(task);
}
void run_task(const BackwardTask<Bf16>& task) {
  HWY_DYNAMIC_DISPATCH(BackwardRangeBf16)(task);
}

// Keys per task of the split backward pass: each task packs every later query once.
constexpr std::int64_t kKeysPerTask = 4 * kKeyTile;

// The operands of one (sequence, key-value head), covering all of its queries and keys.
struct Operands {
  HeadLayout heads;
  double scale;
  AttentionMask mask;
  Tensor qkv, out, lse, dout, dqkv;
  float* scratch;

  template <typename T>
  BackwardTask<T> task(std::int64_t index) const {
    const std::int64_t num_rows = qkv.dim(1);
    const std::int64_t D = heads.head_dim;
    const std::int64_t group = heads.num_heads / heads.num_kv_heads;
    const std::int64_t b = index / heads.num_kv_heads;
    const std::int64_t kv_head = index % heads.num_kv_heads;
    const std::int64_t q = b * num_rows * heads.qkv_width() + kv_head * group * D;
    const std::int64_t k = b * num_rows * heads.qkv_width() + heads.query_width() + kv_head * D;
    const std::int64_t v = k + heads.kv_width();
    const std::int64_t attended = b * num_rows * heads.query_width() + kv_head * group * D;
    const auto row_size = static_cast<std::int64_t>(padded(static_cast<std::size_t>(D)));
    BackwardTask<T> task;
    task.q = qkv.data<T>() + q;
    task.k = qkv.data<T>() + k;
    task.v = qkv.data<T>() + v;
    task.out = out.data<T>() + attended;
    task.dout = dout.data<T>() + attended;
    task.lse = lse.data<float>() + (b * heads.num_heads + kv_head * group) * num_rows;
    task.dq = dqkv.data<T>() + q;
    task.dk_rows = dqkv.data<T>() + k;
    task.dv_rows = dqkv.data<T>() + v;
    task.dk = scratch + index * 2 * num_rows * row_size;
    task.dv = task.dk + num_rows * row_size;
    task.qkv_stride = static_cast<std::size_t>(heads.qkv_width());
    task.out_stride = static_cast<std::size_t>(heads.query_width());
    task.head_dim = static_cast<std::size_t>(D);
    task.num_rows = static_cast<std::size_t>(num_rows);
    task.first_keys.window = static_cast<std::size_t>(mask.window);
    if (mask.document_start.defined()) {
      task.first_keys.document_start = document_starts(mask.document_start) + b * num_rows;
    }
    task.scale = scale;
    task.end_head = static_cast<std::size_t>(group);
    task.end_query = static_cast<std::size_t>(num_rows);
    task.end_key = static_cast<std::size_t>(num_rows);
    return task;
  }
};

// One sweep per (sequence, key-value head) does five products per tile. When there are too few of
// those for the threads, two sweeps cut by keys and by queries do seven, but feed any number of
// threads.
bool one_sweep(std::int64_t num_pairs, std::int64_t num_threads) {
  const std::int64_t rounds = (num_pairs + num_threads - 1) / num_threads;
  return 5 * rounds * num_threads <= 7 * num_pairs;
}

// The number of threads chooses between the two, which is allowed only because both add up every
// gradient in the same order and so give the same bits.
template <typename T>
void run_ranges(Run& run, const Operands& operands) {
  const HeadLayout& heads = operands.heads;
  const std::int64_t num_rows = operands.qkv.dim(1);
  const std::int64_t num_pairs = operands.qkv.dim(0) * heads.num_kv_heads;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  if (one_sweep(num_pairs, run.threads().num_threads())) {
    run.threads().run(num_pairs, [&](std::int64_t index) { run_task(operands.task<T>(index)); });
    return;
  }
  const std::int64_t key_tasks = (num_rows + kKeysPerTask - 1) / kKeysPerTask;
  run.threads().run(key_tasks * num_pairs, [&](std::int64_t index) {
    BackwardTask<T> task = operands.task<T>(index % num_pairs);
    task.queries = false;
    // The first keys are seen by the most queries, so the longest tasks go first.
    const std::int64_t first = index / num_pairs * kKeysPerTask;
    task.first_key = static_cast<std::size_t>(first);
    task.end_key = static_cast<std::size_t>(std::min(num_rows, first + kKeysPerTask));
    const std::size_t tile = query_tile(task.head_dim);
    task.first_query = task.first_key / tile * tile;
    run_task(task);
  });
  const auto tile = static_cast<std::int64_t>(query_tile(static_cast<std::size_t>(heads.head_dim)));
  const std::int64_t query_tasks = (num_rows + tile - 1) / tile;
  run.threads().run(query_tasks * num_pairs * group, [&](std::int64_t index) {
    BackwardTask<T> task = operands.task<T>(index % num_pairs);
    task.keys_and_values = false;
    task.first_head = static_cast<std::size_t>(index / num_pairs % group);
    task.end_head = task.first_head + 1;
    const std::int64_t first = (query_tasks - 1 - index / num_pairs / group) * tile;
    task.first_query = static_cast<std::size_t>(first);
    task.end_query = static_cast<std::size_t>(std::min(num_rows, first + tile));
    run_task(task);
  });
}

}  // namespace

std::size_t attention_backward_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  const auto row_size = static_cast<std::int64_t>(padded(static_cast<std::size_t>(heads.head_dim)));
  return align_up(Spec{
      Dtype::kF32,
      {qkv.shape.dim(0) * heads.num_kv_heads, 2, qkv.shape.dim(1),
       row_size}}.bytes());
}

void attention_backward(Run& run, const HeadLayout& heads, double scale, const AttentionMask& mask,
                        Tensor qkv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv) {
  const std::size_t bytes = attention_backward_scratch_bytes(heads, qkv.spec());
  Run inner = run;
  const Tensor scratch = inner.take_scratch({Dtype::kU8, {static_cast<std::int64_t>(bytes)}});
  const Operands operands = {
      heads, scale, mask, qkv, out, lse, dout, dqkv, static_cast<float*>(scratch.raw())};
  if (qkv.dtype() == Dtype::kBf16) return run_ranges<Bf16>(run, operands);
  run_ranges<float>(run, operands);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
