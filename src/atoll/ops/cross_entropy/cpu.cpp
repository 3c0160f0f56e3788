#include "atoll/ops/cross_entropy/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/ops/embedding/cpu_vocabulary_part.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/matmul/cpu_amx.h"
#include "atoll/ops/matmul/cpu_bf16.h"
#include "atoll/ops/matmul/cpu_tiled.h"
#include "atoll/ops/matmul/cpu_widened.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/amx.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cross_entropy/cpu.cpp"
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

/// The loss of one row, whose logits become grad_scale * d(loss)/d(logits) as sums of two bf16: of
/// each 32 the upper halves, then the lower ones. Room for a multiple of 32 logits, the rest of
/// which become zero.
float row_loss_in_two_terms(float* logits, std::size_t vocab, std::int32_t target,
                            double grad_scale) {
  constexpr std::size_t kTogether = 32;
  const F32 d;
  const std::size_t padded = (vocab + kTogether - 1) / kTogether * kTogether;
  if (target == kIgnoreTarget) {
    std::fill(logits, logits + padded, 0.0F);
    return 0.0F;
  }
  const float max = largest(logits, vocab);
  const double target_logit = static_cast<double>(logits[target]) - static_cast<double>(max);
  const double sum = sum_exp<true>(logits, vocab, max);
  const float scale = static_cast<float>(grad_scale / sum);
  std::fill(logits + vocab, logits + padded, 0.0F);
  // scale * x - grad_scale
  logits[target] -= static_cast<float>(sum);
  for (std::size_t at = 0; at < padded; at += kTogether) {
    HWY_ALIGN Bf16 upper[kTogether];
    HWY_ALIGN Bf16 lower[kTogether];
    for (std::size_t i = 0; i < kTogether; i += hn::Lanes(d)) {
      const Vf value = hn::Mul(hn::LoadU(d, logits + at + i), hn::Set(d, scale));
      Whole{}.store(value, upper + i);
      Whole{}.store(hn::Sub(value, Whole{}.load(upper + i)), lower + i);
    }
    std::memcpy(logits + at, upper, sizeof(upper));
    std::memcpy(logits + at + kTogether / 2, lower, sizeof(lower));
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
HWY_EXPORT(row_loss_in_two_terms);
HWY_EXPORT(softmax_part_row);

namespace {

/// dweight += dlogits^T x for a chunk of rows.
MatmulShape dweight_shape(std::int64_t rows, std::int64_t vocab, std::int64_t width) {
  return {Transpose::kTN, vocab, width, rows};
}

/// Logits of a chunk of rows.
struct Logits {
  float* data;
  std::int64_t stride;     ///< from row to row
  bool two_terms = false;  ///< their gradient is to be two bf16 in the place of each
  bool gradient = true;    ///< where `two_terms` is false: they become their gradient
};

/// The losses of rows [begin, begin + rows), whose logits become their gradient if one is wanted.
void take_losses(Run& run, const CrossEntropyArgs& args, std::int64_t begin, std::int64_t rows,
                 const Logits& logits) {
  float* loss = args.loss.data<float>() + begin;
  const auto vocab = static_cast<std::size_t>(args.vocab);
  run.threads().run_chunked(rows, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      float* const of_row = logits.data + row * logits.stride;
      const std::int32_t target = args.targets[begin + row];
      loss[row] = logits.two_terms ? HWY_DYNAMIC_DISPATCH(row_loss_in_two_terms)(
                                         of_row, vocab, target, args.grad_scale)
                                   : HWY_DYNAMIC_DISPATCH(row_loss)(
                                         of_row, vocab, target, args.grad_scale, logits.gradient);
    }
  });
}

/// From row to row of the logits whose gradient is two terms.
std::int64_t amx_padded_logits(std::int64_t vocab) {
  return (vocab + 31) / 32 * 32;
}

/// With x, weight and dx in bf16, in tiles of AMX. The gradient of the logits is written as two
/// bf16 in the place of each logit: 16 bits of it, and products twice as long.
void run_amx_chunks(Run run, const CrossEntropyArgs& args) {
  const std::int64_t width = args.width;
  const std::int64_t vocab = args.vocab;
  const std::int64_t chunk_rows = cross_entropy_chunk_rows(args.rows, vocab);
  const std::int64_t ld = amx_padded_logits(vocab);
  const Tensor logits = run.take_scratch({Dtype::kF32, {chunk_rows, ld}});
  const auto* const gradient = static_cast<const Bf16*>(logits.raw());
  for (std::int64_t begin = 0; begin < args.rows; begin += chunk_rows) {
    const std::int64_t rows = std::min(chunk_rows, args.rows - begin);
    const Bf16* const x = args.x.data<Bf16>() + begin * width;
    const Bf16* const weight = args.weight.data<Bf16>();
    multiply_amx(run, {.shape = {Transpose::kNT, rows, vocab, width},
                       .a = x,
                       .lda = width,
                       .b = weight,
                       .ldb = width,
                       .c = logits,
                       .ldc = ld});
    take_losses(run, args, begin, rows,
                {logits.data<float>(), ld, args.wants_gradients(), args.wants_gradients()});
    if (!args.wants_gradients()) continue;
    multiply_amx(run, {.shape = {Transpose::kNN, rows, width, vocab},
                       .a = gradient,
                       .lda = 2 * ld,
                       .two_terms = true,
                       .b = weight,
                       .ldb = width,
                       .c = args.dx.rows(begin, begin + rows),
                       .ldc = width});
    if (!args.wants_dweight()) continue;
    multiply_amx(run, {.shape = dweight_shape(rows, vocab, width),
                       .a = gradient,
                       .lda = 2 * ld,
                       .two_terms = true,
                       .b = x,
                       .ldb = width,
                       .c = args.dweight,
                       .ldc = width,
                       .accumulate = true});
  }
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
    take_losses(run, args, begin, rows,
                {logits.data<float>(), vocab, false, args.wants_gradients()});
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
    take_losses(run, args, begin, rows, {logits, vocab, false, args.wants_gradients()});
    if (!args.wants_gradients()) continue;
    float* dx = args.dx.data<float>() + begin * width;
    multiply_tiled(run, {{Transpose::kNN, rows, width, vocab}, logits, weight, dx});
    if (!args.wants_dweight()) continue;
    multiply_tiled(run, {dweight_shape(rows, vocab, width), logits, x, args.dweight.data<float>(),
                         nullptr, /*accumulate=*/true});
  }
}

}  // namespace

void losses_of_logits(Run& run, const CrossEntropyArgs& args, const Tensor& logits, bool gradient) {
  take_losses(run, args, 0, args.rows, {logits.data<float>(), args.vocab, false, gradient});
}

std::size_t cross_entropy_scratch_bytes(Dtype dtype, std::int64_t rows, std::int64_t vocab,
                                        std::int64_t width) {
  const std::int64_t chunk_rows = cross_entropy_chunk_rows(rows, vocab);
  const bool is_amx = dtype == Dtype::kBf16 && simd::has_amx();
  const std::int64_t ld = is_amx ? amx_padded_logits(vocab) : vocab;
  const std::size_t logits = align_up(Spec{compute_dtype(dtype), {chunk_rows, ld}}.bytes());
  const MatmulShape dweight = dweight_shape(chunk_rows, vocab, width);
  if (is_amx) return logits + amx_scratch_bytes(dweight, true);
  return logits + (dtype == Dtype::kF32 ? tiled_scratch_bytes(dweight) : 0);
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
    if (args.x.dtype() == Dtype::kF32) return run_chunks(run, args);
    bf16_arithmetic() == Bf16Arithmetic::kAmx ? run_amx_chunks(run, args)
                                              : run_widened_chunks(run, args);
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
