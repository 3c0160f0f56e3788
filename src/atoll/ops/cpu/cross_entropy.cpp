#include "atoll/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "atoll/ops/cpu/matmul_bf16.h"
#include "atoll/ops/cpu/matmul_tiled.h"
#include "atoll/ops/cpu/matmul_widened.h"
#include "atoll/ops/cpu/vocabulary_part.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/exp2-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

float largest(const float* x, std::size_t n) {
  const F32 d;
  const std::size_t width = hn::Lanes(d);
  if (n < width) return *std::max_element(x, x + n);
  Vf max = hn::LoadU(d, x + n - width);  // overlaps the last whole vector: max does not mind
  for (std::size_t i = 0; i + width <= n; i += width) max = hn::Max(max, hn::LoadU(d, x + i));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

/// The sum of exp(x - max) over n logits, which they become when `store`.
template <bool store>
double sum_exp(float* x, std::size_t n, float max) {
  constexpr std::size_t kSegment = 4096;  // f32 sums stay short; the whole is summed in f64
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += kSegment) {
    float* part = x + begin;
    const auto sums = sum_lanes(
        std::min(kSegment, n - begin), [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
          const Vf shifted = hn::Sub(lanes.load(part + i), hn::Set(F32(), max));
          const Vf value = exp2_lanes(hn::Mul(shifted, hn::Set(F32(), kBitsPerNat)));
          if constexpr (store) lanes.store(value, part + i);
          sum.first = hn::Add(sum.first, lanes.counted(value));
          // 2^-infinity is 0; this sum is 0, or NaN if a logit was not finite.
          sum.second = hn::MulAdd(lanes.counted(shifted), hn::Zero(F32()), sum.second);
        });
    total += static_cast<double>(sums.first) + static_cast<double>(sums.second);
  }
  return total;
}

/// The loss of one row; with `gradient` its logits become grad_scale * d(loss)/d(logits).
float row_loss(float* logits, std::size_t vocab, std::int32_t target, double grad_scale,
               bool gradient) {
  if (target == kIgnoreTarget) {
    if (gradient) std::fill(logits, logits + vocab, 0.0F);
    return 0.0F;
  }
  const float max = largest(logits, vocab);
  const double target_logit = static_cast<double>(logits[target]) - static_cast<double>(max);
  const double sum =
      gradient ? sum_exp<true>(logits, vocab, max) : sum_exp<false>(logits, vocab, max);
  if (gradient) {
    const float scale = static_cast<float>(grad_scale / sum);
    for_lanes(vocab, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(lanes.load(logits + i), hn::Set(F32(), scale)), logits + i);
    });
    logits[target] -= static_cast<float>(grad_scale);
  }
  return static_cast<float>(std::log(sum) - target_logit);
}

/// One row of ops::softmax_part.
void softmax_part_row(const VocabularyPart& part, float* logits, std::int32_t target,
                      double* statistics) {
  std::fill_n(statistics, kNumSoftmaxStatistics, 0.0);
  if (target == kIgnoreTarget) return;
  const auto size = static_cast<std::size_t>(part.size);
  const float max = largest(logits, size);
  statistics[kMaxLogit] = max;
  if (part.contains(target)) statistics[kTargetLogit] = logits[target - part.first];
  statistics[kSumExp] = sum_exp<true>(logits, size, max);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(row_loss);
HWY_EXPORT(softmax_part_row);

namespace {

/// dweight += dlogits^T x for a chunk of rows.
MatmulShape dweight_shape(std::int64_t rows, std::int64_t vocab, std::int64_t width) {
  return {Transpose::kTN, vocab, width, rows};
}

/// The losses of rows [begin, begin + rows), whose logits become their gradient if one is wanted.
void take_losses(Run& run, const CrossEntropyArgs& args, std::int64_t begin, std::int64_t rows,
                 float* logits) {
  float* loss = args.loss.data<float>() + begin;
  run.threads().run_chunked(rows, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      loss[row] = HWY_DYNAMIC_DISPATCH(row_loss)(
          logits + row * args.vocab, static_cast<std::size_t>(args.vocab),
          args.targets[begin + row], args.grad_scale, args.wants_gradients());
    }
  });
}

/// With x, weight and dx in bf16. The weight is read piece by piece, once for each chunk; the
/// gradient of the logits stays in f32, so two of three products widen.
void run_widened_chunks(Run run, const CrossEntropyArgs& args) {
  const std::int64_t width = args.width;
  const std::int64_t vocab = args.vocab;
  const std::int64_t chunk_rows = cross_entropy_chunk_rows(args.rows, vocab);
  const Tensor room = run.take_scratch({Dtype::kF32, {chunk_rows, vocab}});
  for (std::int64_t begin = 0; begin < args.rows; begin += chunk_rows) {
    const std::int64_t rows = std::min(chunk_rows, args.rows - begin);
    const Tensor logits = room.rows(0, rows);
    const Tensor x = args.x.rows(begin, begin + rows);
    const MatmulArgs to_logits = {
        {Transpose::kNT, rows, vocab, width}, x, args.weight, logits, {}, false};
    if (matmul_bf16(run, to_logits) != kServed) matmul_widened(run, to_logits);
    take_losses(run, args, begin, rows, logits.data<float>());
    if (!args.wants_gradients()) continue;
    const Tensor dx = args.dx.rows(begin, begin + rows);
    matmul_widened(run, {{Transpose::kNN, rows, width, vocab}, logits, args.weight, dx, {}, false});
    if (!args.wants_dweight()) continue;
    matmul_widened(run, {{Transpose::kTN, vocab, width, rows}, logits, x, args.dweight, {}, true});
  }
}

void run_chunks(Run run, const CrossEntropyArgs& args) {
  const std::int64_t width = args.width;
  const std::int64_t vocab = args.vocab;
  const std::int64_t chunk_rows = cross_entropy_chunk_rows(args.rows, vocab);
  const float* weight = args.weight.data<float>();
  float* logits = run.take_scratch({Dtype::kF32, {chunk_rows, vocab}}).data<float>();
  for (std::int64_t begin = 0; begin < args.rows; begin += chunk_rows) {
    const std::int64_t rows = std::min(chunk_rows, args.rows - begin);
    const float* x = args.x.data<float>() + begin * width;
    multiply_tiled(run, {{Transpose::kNT, rows, vocab, width}, x, weight, logits});
    take_losses(run, args, begin, rows, logits);
    if (!args.wants_gradients()) continue;
    float* dx = args.dx.data<float>() + begin * width;
    multiply_tiled(run, {{Transpose::kNN, rows, width, vocab}, logits, weight, dx});
    if (!args.wants_dweight()) continue;
    multiply_tiled(run, {dweight_shape(rows, vocab, width), logits, x, args.dweight.data<float>(),
                         nullptr, /*accumulate=*/true});
  }
}

}  // namespace

std::size_t cross_entropy_scratch_bytes(std::int64_t rows, std::int64_t vocab, std::int64_t width) {
  return tiled_scratch_bytes(dweight_shape(cross_entropy_chunk_rows(rows, vocab), vocab, width));
}

void softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                  Tensor statistics) {
  run.threads().run_chunked(logits.dim(0), 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      HWY_DYNAMIC_DISPATCH(softmax_part_row)
      (part, logits.data<float>() + row * part.size, targets.data<std::int32_t>()[row],
       statistics.data<double>() + row * kNumSoftmaxStatistics);
    }
  });
}

Declined cross_entropy(Run& run, const CrossEntropyArgs& args) {
  if (args.width == 0) return "nothing to sum";
  return serve_f32_or_bf16(run, args.x.dtype(), [&] {
    check_targets(args);
    args.x.dtype() == Dtype::kBf16 ? run_widened_chunks(run, args) : run_chunks(run, args);
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
