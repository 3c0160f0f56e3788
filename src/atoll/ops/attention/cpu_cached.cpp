#include <algorithm>
#include <cmath>

#include "atoll/ops/attention/cpu.h"
#include "atoll/ops/attention/cpu_tiles.h"
#include "atoll/ops/storage.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/attention/cpu_cached.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/attention/cpu_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// scores[i] = the score of q . k_i in units of log 2, and a padding up to whole vectors that weighs
// nothing.
template <class T>
HWY_INLINE void decode_scores(const DecodeTask<T>& task, const T* k, std::size_t num_keys,
                              float* scores) {
  for (std::size_t i = 0; i < num_keys; ++i, k += task.kv_stride) {
    const TwoSums sums =
        sum_lanes(task.head_dim, [&](std::size_t c, auto lanes, TwoVectors& sum) HWY_ATTR {
          sum.first = hn::MulAdd(lanes.load(task.q + c), lanes.load(k + c), sum.first);
        });
    scores[i] = task.factor * sums.first;
  }
  if (task.cap != 0) {
    for_lanes(num_keys, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(hn::Set(F32(), task.cap), tanh_lanes(lanes.load(scores + i))),
                  scores + i);
    });
  }
  for (std::size_t i = num_keys; i % kLanes != 0; ++i) scores[i] = kHiddenScore;
}

// scores -> exp(score - new maximum); returns the new maximum and adds to *sum.
HWY_INLINE float decode_softmax(float* scores, std::size_t num_keys, float old_max, float* sum) {
  const F32 d;
  Vf max = hn::Set(d, old_max);
  for (std::size_t i = 0; i < num_keys; i += kLanes) max = hn::Max(max, hn::Load(d, scores + i));
  max = hn::MaxOfLanes(d, max);
  Vf total = hn::Zero(d);
  for (std::size_t i = 0; i < num_keys; i += kLanes) {
    const Vf e = exp2_lanes(hn::Sub(hn::Load(d, scores + i), max));
    hn::Store(e, d, scores + i);
    total = hn::Add(total, e);
  }
  *sum += hn::GetLane(hn::SumOfLanes(d, total));
  return hn::GetLane(max);
}

// out += sum of weights[i] v_i, after out *= shrink; two rows at a time halve the traffic of out.
template <class T>
HWY_INLINE void decode_values(const DecodeTask<T>& task, const T* v, const float* weights,
                              std::size_t num_keys, float shrink, float* out) {
  const F32 d;
  const std::size_t D = task.head_dim;
  for_lanes(D, [&](std::size_t c, auto lanes) HWY_ATTR {
    Vf even = hn::Mul(lanes.load(out + c), hn::Set(d, shrink));
    Vf odd = hn::Zero(d);
    const T* p = v + c;
    std::size_t i = 0;
    for (; i + 2 <= num_keys; i += 2, p += 2 * task.kv_stride) {
      even = hn::MulAdd(hn::Set(d, weights[i]), lanes.load(p), even);
      odd = hn::MulAdd(hn::Set(d, weights[i + 1]), lanes.load(p + task.kv_stride), odd);
    }
    if (i < num_keys) even = hn::MulAdd(hn::Set(d, weights[i]), lanes.load(p), even);
    lanes.store(hn::Add(even, odd), out + c);
  });
}

// All query heads of one key-value head take each block of keys while it is in the first-level
// cache, so that memory is read once however many heads share it. `partials` lie `stride` apart.
template <class T>
void decode_range(const DecodeTask<T>& task, std::size_t num_heads, std::size_t stride) {
  HWY_ALIGN float scores[kKeyTile];
  for (std::size_t h = 0; h < num_heads; ++h) {
    float* partial = task.partial + h * stride;
    partial[0] = kHiddenScore;
    std::fill_n(partial + 1, task.head_dim + 1, 0.0F);
  }
  for (std::size_t key = 0; key < task.num_keys; key += kKeyTile) {
    const std::size_t num_keys = std::min(kKeyTile, task.num_keys - key);
    for (std::size_t h = 0; h < num_heads; ++h) {
      DecodeTask<T> head = task;
      head.q += h * task.head_dim;
      float* partial = task.partial + h * stride;
      decode_scores(head, task.k + key * task.kv_stride, num_keys, scores);
      float sum = 0;
      const float max = decode_softmax(scores, num_keys, partial[0], &sum);
      const float shrink = std::exp2(partial[0] - max);
      partial[0] = max;
      partial[1] = partial[1] * shrink + sum;
      decode_values(head, task.v + key * task.kv_stride, scores, num_keys, shrink, partial + 2);
    }
  }
}

void DecodeRangeF32(const DecodeTask<float>& task, std::size_t num_heads, std::size_t stride) {
  decode_range(task, num_heads, stride);
}
void DecodeRangeBf16(const DecodeTask<Bf16>& task, std::size_t num_heads, std::size_t stride) {
  decode_range(task, num_heads, stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(DecodeRangeF32);
HWY_EXPORT(DecodeRangeBf16);

void run_task(const DecodeTask<float>& task, std::size_t num_heads, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(DecodeRangeF32)(task, num_heads, stride);
}
void run_task(const DecodeTask<Bf16>& task, std::size_t num_heads, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(DecodeRangeBf16)(task, num_heads, stride);
}

// A long cache is cut into ranges, so that one sequence with few heads still feeds many threads.
constexpr std::int64_t kMinRange = 256;
constexpr std::int64_t kMaxRanges = 32;

std::int64_t partial_size(const HeadLayout& heads) {
  return heads.head_dim + 2;
}

// out = the ranges' results, each weighted by exp(its maximum - the largest one) and its sum; the
// log-sum-exp goes to `lse` unless it is null.
template <typename T>
void merge_ranges(const float* partials, std::int64_t num_ranges, std::int64_t range_stride,
                  std::int64_t D, T* out, float* lse) {
  float total[kMaxTiledHeadDim];
  float max = partials[0];
  for (std::int64_t r = 1; r < num_ranges; ++r) max = std::max(max, partials[r * range_stride]);
  float sum = 0;
  std::fill_n(total, D, 0.0F);
  for (std::int64_t r = 0; r < num_ranges; ++r) {
    const float* partial = partials + r * range_stride;
    const float weight = std::exp2(partial[0] - max);
    sum += weight * partial[1];
    for (std::int64_t d = 0; d < D; ++d) total[d] += weight * partial[2 + d];
  }
  const float inverse = 1.0F / sum;
  for (std::int64_t d = 0; d < D; ++d) out[d] = narrow<T>(total[d] * inverse);
  if (lse != nullptr) *lse = static_cast<float>((max + std::log2(sum)) / kLog2E);
}

template <typename T>
void decode(Run& run, const HeadLayout& heads, const ForwardOperands<T>& operands, std::int64_t B) {
  const std::int64_t D = heads.head_dim;
  const std::int64_t end_key = operands.key_offset + 1;
  const std::int64_t first_key =
      operands.window == 0 ? 0 : std::max<std::int64_t>(0, end_key - operands.window);
  const std::int64_t num_keys = end_key - first_key;
  const std::int64_t group = heads.num_heads / heads.num_kv_heads;
  const std::int64_t range = std::max(kMinRange, (num_keys + kMaxRanges - 1) / kMaxRanges);
  const std::int64_t num_ranges = (num_keys + range - 1) / range;
  const std::int64_t size = partial_size(heads);
  const std::int64_t range_stride = B * heads.num_heads * size;
  Run inner = run;
  float* partials =
      inner.take_scratch({Dtype::kF32, {num_ranges, B, heads.num_heads, size}}).data<float>();

  run.threads().run(B * heads.num_kv_heads * num_ranges, [&](std::int64_t index) {
    const std::int64_t r = index % num_ranges;
    const std::int64_t b = index / num_ranges / heads.num_kv_heads;
    const std::int64_t kv_head = index / num_ranges % heads.num_kv_heads;
    const std::int64_t kv =
        b * operands.kv_batch_stride + (first_key + r * range) * operands.kv_stride + kv_head * D;
    const DecodeTask<T> task = {
        operands.qkv + b * heads.qkv_width() + kv_head * group * D,
        operands.k + kv,
        operands.v + kv,
        static_cast<std::size_t>(operands.kv_stride),
        static_cast<std::size_t>(std::min(range, num_keys - r * range)),
        static_cast<std::size_t>(D),
        query_factor(operands.scores),
        score_cap(operands.scores),
        partials + r * range_stride + (b * heads.num_heads + kv_head * group) * size};
    run_task(task, static_cast<std::size_t>(group), static_cast<std::size_t>(size));
  });
  for (std::int64_t row = 0; row < B * heads.num_heads; ++row) {
    merge_ranges(partials + row * size, num_ranges, range_stride, D, operands.out + row * D,
                 operands.lse == nullptr ? nullptr : operands.lse + row);
  }
}

template <typename T>
void cached(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
            std::int64_t key_offset, const Tensor& qkv, const Tensor& k_cache,
            const Tensor& v_cache, const Tensor& out, const Tensor& lse) {
  ForwardOperands<T> operands;
  operands.qkv = qkv.data<T>();
  operands.k = k_cache.data<T>();
  operands.v = v_cache.data<T>();
  operands.kv_stride = heads.kv_width();
  operands.kv_batch_stride = k_cache.dim(1) * heads.kv_width();
  operands.out = out.data<T>();
  if (lse.defined()) operands.lse = lse.data<float>();
  operands.batch_rows = qkv.dim(1);
  operands.key_offset = key_offset;
  operands.window = window;
  operands.scores = scores;
  if (qkv.dim(1) == 1) {
    decode(run, heads, operands, qkv.dim(0));
  } else {
    forward_tiles(run, qkv.dim(0), qkv.dim(1), heads, operands);
  }
}

}  // namespace

std::size_t attention_cached_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  return align_up(
      Spec{Dtype::kF32, {kMaxRanges, qkv.shape.dim(0), heads.num_heads, partial_size(heads)}}
          .bytes());
}

void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      std::int64_t window, std::int64_t key_offset, Tensor qkv, Tensor k_cache,
                      Tensor v_cache, Tensor out, Tensor lse) {
  if (qkv.dtype() == Dtype::kBf16) {
    return cached<Bf16>(run, heads, scores, window, key_offset, qkv, k_cache, v_cache, out, lse);
  }
  cached<float>(run, heads, scores, window, key_offset, qkv, k_cache, v_cache, out, lse);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
