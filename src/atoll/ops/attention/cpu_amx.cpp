#include "atoll/ops/attention/cpu_amx.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "atoll/ops/attention/cpu_shape.h"
#include "atoll/ops/cpu/amx_tiles.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/positions.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/attention/cpu_amx.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/exp2-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// Turns a row of n scores into exp(scale (score - maximum)), rounded. `max` becomes the maximum
/// times scale, in units of log 2, and `sum` the sum before rounding.
void softmax_row(const float* scores, std::size_t n, float scale, Bf16* probabilities, float* max,
                 float* sum) {
  const F32 d;
  const std::size_t width = hn::Lanes(d);
  float highest = *std::max_element(scores, scores + std::min(n, width));
  if (n >= width) {
    Vf largest = hn::LoadU(d, scores + n - width);  // overlaps the last whole vector
    for (std::size_t i = 0; i + width <= n; i += width) {
      largest = hn::Max(largest, hn::LoadU(d, scores + i));
    }
    highest = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
  const Vf shift = hn::Set(d, -highest * scale);
  *max = highest * scale;
  *sum = sum_lanes(n, [&](std::size_t i, auto lanes, TwoVectors& sums) HWY_ATTR {
           const Vf scaled = hn::MulAdd(lanes.load(scores + i), hn::Set(F32(), scale), shift);
           const Vf p = exp2_lanes(scaled);
           lanes.store(p, probabilities + i);
           sums.first = hn::Add(sums.first, lanes.counted(p));
         }).first;
}

/// Turns a row of n scores into probabilities, rounded: 2^(scale score - log_sum).
void probabilities_row(const float* scores, std::size_t n, float scale, float log_sum,
                       Bf16* probabilities) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(exp2_lanes(hn::MulAdd(lanes.load(scores + i), hn::Set(F32(), scale),
                                      hn::Set(F32(), -log_sum))),
                probabilities + i);
  });
}

/// ds = p (dp - delta), rounded.
void score_gradient_row(const Bf16* p, const float* dp, std::size_t n, float delta, Bf16* ds) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf difference = hn::Sub(lanes.load(dp + i), hn::Set(F32(), delta));
    lanes.store(hn::Mul(lanes.load(p + i), difference), ds + i);
  });
}

float dot_row(const Bf16* a, const Bf16* b, std::size_t n) {
  return sum_lanes(n,
                   [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
                     sum.first = hn::MulAdd(lanes.load(a + i), lanes.load(b + i), sum.first);
                   })
      .first;
}

/// to = factor * from, rounded.
void scale_row(const float* from, std::size_t n, float factor, Bf16* to) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Mul(lanes.load(from + i), hn::Set(F32(), factor)), to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(softmax_row);
HWY_EXPORT(probabilities_row);
HWY_EXPORT(score_gradient_row);
HWY_EXPORT(dot_row);
HWY_EXPORT(scale_row);

constexpr std::int64_t kMaxHead = 128;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 17;  // of a head's keys: T * D
constexpr std::int64_t kMaxQueries = 128;                     // of a block

/// A thread's room. Rows of scores are as long as their keys, padded.
struct Room {
  alignas(64) Bf16 k_columns[kMaxElements];  ///< right tiles: terms are a head's elements
  alignas(64) Bf16 v_columns[kMaxElements];
  alignas(64) Bf16 k_rows[kMaxElements];  ///< right tiles: terms are keys
  alignas(64) Bf16 v_rows[kMaxElements];
  alignas(64) float scores[kMaxElements];
  alignas(64) Bf16 p[kMaxElements];
  alignas(64) Bf16 ds[kMaxElements];
  alignas(64) Bf16 turned[kMaxElements];  ///< p or ds as left tiles: rows are keys
  alignas(64) float dk[kMaxElements];     ///< blocks of 32 x 32, as AmxProduct::partial
  alignas(64) float dv[kMaxElements];
  alignas(64) Bf16 queries[kMaxQueries * kMaxHead];  ///< right tiles: terms are queries
  alignas(64) float sums[kMaxQueries * kMaxHead];
  alignas(64) Bf16 last_rows[kAmxBlock * kMaxHead];

  static Room& mine() {
    thread_local const auto room = std::make_unique_for_overwrite<Room>();
    // The analyzer takes the end of the function for the end of a thread.
    return *room;  // NOLINT(clang-analyzer-cplusplus.NewDelete)
  }
};

static_assert(sizeof(Room) <= 5 << 20, "attention_amx.h says how much a thread keeps");

/// The heads of one key-value head of one sequence.
struct Operands {
  std::int64_t T = 0, D = 0;
  std::int64_t qkv_stride = 0, out_stride = 0;
  FirstKeys first_keys;  ///< of all queries
  float scale = 1;
  const Bf16* q = nullptr;  ///< of the first head
  const Bf16* k = nullptr;
  const Bf16* v = nullptr;
};

/// Queries [first, first + count) against keys [begin, end): whole blocks of 32, of which what
/// nobody sees is left out on either side.
struct Block {
  std::int64_t first, count;
  std::int64_t begin, end;

  std::int64_t keys() const { return end - begin; }
  std::int64_t padded_count() const { return amx_padded(count); }
};

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

Block block_of(const Operands& o, std::int64_t first, std::int64_t count) {
  const auto begin = static_cast<std::int64_t>(o.first_keys.of(size(first), size(first)));
  return {first, count, begin / kAmxBlock * kAmxBlock, amx_padded(first + count)};
}

/// As many queries as scores have room for, whole blocks.
std::int64_t queries_per_block(std::int64_t T) {
  return std::clamp(kMaxElements / amx_padded(T) / kAmxBlock * kAmxBlock, kAmxBlock, kMaxQueries);
}

/// Rows of one head of a tensor, as the left operand of a product over its elements.
AmxLeft head_rows(const Bf16* rows, std::int64_t stride, const Block& block, std::int64_t D,
                  Room& room) {
  AmxLeft a;
  a.data = rows;
  a.row_bytes = stride * std::int64_t{sizeof(Bf16)};
  a.step = kAmxTerms;
  a.tile = kAmxRows * stride;
  const std::int64_t odd = block.count % kAmxBlock;
  if (odd > 0) {
    amx_pack_left({rows + (block.count - odd) * stride, stride}, D, odd, D * kAmxRows, false,
                  room.last_rows);
    a.last_rows = room.last_rows;
  }
  return a;
}

/// room.scores = rows of a head times keys (or values) packed in `columns`.
void score(const Block& block, const AmxLeft& rows, const Bf16* columns, std::int64_t D,
           Room& room) {
  AmxProduct product;
  product.rows = block.count;
  product.cols = block.keys();
  product.steps = D / kAmxTerms;
  product.a = rows;
  product.b = columns + block.begin * D;
  product.b_columns = kAmxRows * D;
  product.c = room.scores;
  product.ldc = block.keys();
  amx_multiply(product);
}

/// room.sums (count, D) = weights (count, keys) times rows of keys or values, packed.
void weigh(const Block& block, const Bf16* weights, const Bf16* rows, const Operands& o,
           Room& room) {
  AmxProduct product;
  product.rows = block.count;
  product.cols = o.D;
  product.steps = block.keys() / kAmxTerms;
  product.a.data = weights;
  product.a.row_bytes = block.keys() * std::int64_t{sizeof(Bf16)};
  product.a.step = kAmxTerms;
  product.a.tile = kAmxRows * block.keys();
  product.b = rows + block.begin * kAmxRows;
  product.b_columns = amx_padded(o.T) * kAmxRows;
  product.c = room.sums;
  product.ldc = o.D;
  amx_multiply(product);
}

/// sums (keys, D) += weights^T (keys, queries) times room.queries.
void weigh_transposed(const Block& block, const Bf16* weights, const Operands& o, float* sums,
                      Room& room) {
  const std::int64_t tile = block.padded_count() * kAmxRows;
  amx_pack_left_transposed({weights, block.keys()}, block.padded_count(), block.keys(), tile, false,
                           room.turned);
  AmxProduct product;
  product.rows = block.keys();
  product.cols = o.D;
  product.steps = block.padded_count() / kAmxTerms;
  product.a.data = room.turned;
  product.a.tile = tile;
  product.b = room.queries;
  product.b_columns = tile;
  product.partial = sums + block.begin * kAmxBlock;
  product.partial_columns = amx_padded(o.T) * kAmxBlock;
  product.is_first = product.is_last = false;
  amx_multiply(product);
}

/// Calls row(i, first, count) for each query i of the block, which sees `count` keys from `first`
/// of the block's on, and zeroes the rest of its row of `weights`; so are the rows that pad.
template <typename Row>
void for_rows(const Block& block, const Operands& o, Bf16* weights, Row&& row) {
  for (std::int64_t i = 0; i < block.padded_count(); ++i) {
    Bf16* const of_row = weights + i * block.keys();
    if (i >= block.count) {
      std::fill_n(of_row, block.keys(), Bf16{});
      continue;
    }
    const std::int64_t query = block.first + i;
    const auto key = static_cast<std::int64_t>(o.first_keys.of(size(query), size(query)));
    const std::int64_t first = key - block.begin, end = query + 1 - block.begin;
    std::fill_n(of_row, first, Bf16{});
    std::fill(of_row + end, of_row + block.keys(), Bf16{});
    row(i, first, end - first);
  }
}

Operands operands_of(const HeadLayout& heads, AttentionScores scores, const AttentionMask& mask,
                     const Tensor& qkv, std::int64_t b, std::int64_t kv_head) {
  Operands o;
  o.T = qkv.dim(1);
  o.D = heads.head_dim;
  o.qkv_stride = heads.qkv_width();
  o.out_stride = heads.query_width();
  o.first_keys.window = size(mask.window);
  if (mask.positions.defined()) o.first_keys.positions = position_data(mask.positions) + b * o.T;
  o.scale = static_cast<float>(scores.scale);
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const Bf16* const sequence = qkv.data<Bf16>() + b * o.T * heads.qkv_width();
  o.q = sequence + kv_head * group * o.D;
  o.k = sequence + heads.query_width() + kv_head * o.D;
  o.v = o.k + heads.kv_width();
  return o;
}

/// The attended values of one head. `lse` and `out` are those of its query 0.
void forward_head(const Operands& o, const Bf16* q, Bf16* out, float* lse, Room& room) {
  const float scale = o.scale * static_cast<float>(kLog2E);
  const std::int64_t queries = std::min<std::int64_t>(64, queries_per_block(o.T));
  for (std::int64_t first = 0; first < o.T; first += queries) {
    const Block block = block_of(o, first, std::min(queries, o.T - first));
    score(block, head_rows(q + first * o.qkv_stride, o.qkv_stride, block, o.D, room),
          room.k_columns, o.D, room);
    float sums[kMaxQueries];
    for_rows(block, o, room.p, [&](std::int64_t i, std::int64_t key, std::int64_t count) {
      const std::int64_t at = i * block.keys() + key;
      float max = 0;
      HWY_DYNAMIC_DISPATCH(softmax_row)
      (room.scores + at, size(count), scale, room.p + at, &max, &sums[i]);
      lse[first + i] = max * static_cast<float>(kLn2) + std::log(sums[i]);
    });
    weigh(block, room.p, room.v_rows, o, room);
    for (std::int64_t i = 0; i < block.count; ++i) {
      HWY_DYNAMIC_DISPATCH(scale_row)
      (room.sums + i * o.D, size(o.D), 1 / sums[i], out + (first + i) * o.out_stride);
    }
  }
}

/// What gradients of one head are made from; all are those of its query 0.
struct HeadGradient {
  const Bf16* q;
  const Bf16* out;
  const Bf16* dout;
  const float* lse;
  Bf16* dq;
};

/// dq of one head, and what it adds to room.dk and room.dv.
void backward_head(const Operands& o, const HeadGradient& head, Room& room) {
  const float scale = o.scale * static_cast<float>(kLog2E);
  const std::int64_t queries = queries_per_block(o.T);
  for (std::int64_t first = 0; first < o.T; first += queries) {
    const Block block = block_of(o, first, std::min(queries, o.T - first));
    const std::int64_t columns = block.padded_count() * kAmxRows;
    const AmxSource q = {head.q + first * o.qkv_stride, o.qkv_stride};
    const AmxSource dout = {head.dout + first * o.out_stride, o.out_stride};
    score(block, head_rows(q.data, q.stride, block, o.D, room), room.k_columns, o.D, room);
    for_rows(block, o, room.p, [&](std::int64_t i, std::int64_t key, std::int64_t count) {
      const std::int64_t at = i * block.keys() + key;
      HWY_DYNAMIC_DISPATCH(probabilities_row)
      (room.scores + at, size(count), scale, head.lse[first + i] * static_cast<float>(kLog2E),
       room.p + at);
    });
    amx_pack_right(dout, block.count, o.D, columns, room.queries);
    weigh_transposed(block, room.p, o, room.dv, room);

    score(block, head_rows(dout.data, dout.stride, block, o.D, room), room.v_columns, o.D, room);
    for_rows(block, o, room.ds, [&](std::int64_t i, std::int64_t key, std::int64_t count) {
      const std::int64_t at = i * block.keys() + key, row = (first + i) * o.out_stride;
      const float delta = HWY_DYNAMIC_DISPATCH(dot_row)(head.out + row, head.dout + row, size(o.D));
      HWY_DYNAMIC_DISPATCH(score_gradient_row)
      (room.p + at, room.scores + at, size(count), delta, room.ds + at);
    });
    amx_pack_right(q, block.count, o.D, columns, room.queries);
    weigh_transposed(block, room.ds, o, room.dk, room);

    weigh(block, room.ds, room.k_rows, o, room);
    for (std::int64_t i = 0; i < block.count; ++i) {
      HWY_DYNAMIC_DISPATCH(scale_row)
      (room.sums + i * o.D, size(o.D), o.scale, head.dq + (first + i) * o.qkv_stride);
    }
  }
}

/// Rows of keys or values, for products over their elements and over keys.
void pack_columns(const Bf16* rows, const Operands& o, Bf16* to) {
  amx_pack_right_transposed({rows, o.qkv_stride}, o.D, o.T, kAmxRows * o.D, to);
}
void pack_rows(const Bf16* rows, const Operands& o, Bf16* to) {
  amx_pack_right({rows, o.qkv_stride}, o.T, o.D, amx_padded(o.T) * kAmxRows, to);
}

/// rows (T, D) = factor * sums, which lie in blocks.
void store_gradient(const float* sums, float factor, const Operands& o, Bf16* rows) {
  for (std::int64_t key = 0; key < o.T; ++key) {
    for (std::int64_t c = 0; c < o.D; c += kAmxBlock) {
      HWY_DYNAMIC_DISPATCH(scale_row)
      (sums + c * amx_padded(o.T) + key * kAmxBlock, size(kAmxBlock), factor,
       rows + key * o.qkv_stride + c);
    }
  }
}

/// nullptr, or why tiles cannot serve.
Declined why_not(const HeadLayout& heads, const AttentionScores& scores, const Tensor& qkv) {
  if (qkv.dtype() != Dtype::kBf16) return "not bf16";
  if (bf16_arithmetic() != Bf16Arithmetic::kAmx) return "AMX is not chosen";
  if (scores.softcap != 0) return "a soft cap";
  if (heads.head_dim % kAmxTerms != 0) return "head_dim is no multiple of 32";
  if (heads.head_dim > kMaxHead) return "head_dim above 128";
  if (amx_padded(qkv.dim(1)) * heads.head_dim > kMaxElements) return "keys exceed a core's cache";
  return kServed;
}

}  // namespace

Declined attention_amx_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                               const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  if (const Declined reason = why_not(heads, scores, qkv); reason != kServed) return reason;
  return serve_host(run, [&] {
    const std::int64_t group = heads.num_heads / heads.num_kv_heads;
    run.threads().run(qkv.dim(0) * heads.num_kv_heads, [&](std::int64_t pair) {
      const std::int64_t b = pair / heads.num_kv_heads, kv_head = pair % heads.num_kv_heads;
      const Operands o = operands_of(heads, scores, mask, qkv, b, kv_head);
      Room& room = Room::mine();
      const AmxScope scope;
      pack_columns(o.k, o, room.k_columns);
      pack_rows(o.v, o, room.v_rows);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        forward_head(o, o.q + (h - kv_head * group) * o.D,
                     out.data<Bf16>() + b * o.T * o.out_stride + h * o.D,
                     lse.data<float>() + (b * heads.num_heads + h) * o.T, room);
      }
    });
  });
}

Declined attention_amx_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                Tensor dout, Tensor dqkv) {
  if (const Declined reason = why_not(heads, scores, qkv); reason != kServed) return reason;
  return serve_host(run, [&] {
    const std::int64_t group = heads.num_heads / heads.num_kv_heads;
    run.threads().run(qkv.dim(0) * heads.num_kv_heads, [&](std::int64_t pair) {
      const std::int64_t b = pair / heads.num_kv_heads, kv_head = pair % heads.num_kv_heads;
      const Operands o = operands_of(heads, scores, mask, qkv, b, kv_head);
      Room& room = Room::mine();
      const AmxScope scope;
      pack_columns(o.k, o, room.k_columns);
      pack_columns(o.v, o, room.v_columns);
      pack_rows(o.k, o, room.k_rows);
      std::fill_n(room.dk, amx_padded(o.T) * o.D, 0.0F);
      std::fill_n(room.dv, amx_padded(o.T) * o.D, 0.0F);
      Bf16* const gradients = dqkv.data<Bf16>() + b * o.T * o.qkv_stride;
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const std::int64_t attended = b * o.T * o.out_stride + h * o.D;
        backward_head(o,
                      {o.q + (h - kv_head * group) * o.D, out.data<Bf16>() + attended,
                       dout.data<Bf16>() + attended,
                       lse.data<float>() + (b * heads.num_heads + h) * o.T, gradients + h * o.D},
                      room);
      }
      Bf16* const dk = gradients + heads.query_width() + kv_head * o.D;
      store_gradient(room.dk, o.scale, o, dk);
      store_gradient(room.dv, 1, o, dk + heads.kv_width());
    });
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
