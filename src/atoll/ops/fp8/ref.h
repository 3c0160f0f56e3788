#pragma once

// Numbers of 8 bits on the host: each rounded and multiplied by itself.

#include <algorithm>
#include <bit>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ops/fp8/args.h"
#include "atoll/ops/fp8/numbers.h"
#include "atoll/ops/matmul/args.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/simd/bf16.h"

namespace atl::ops::ref {

/// See ops::round_to_fp8.
inline void round_to_fp8(ThreadPool& threads, const RoundToFp8Args& args) {
  const Fp8Matrix& out = args.out;
  const Bf16* x = args.x.data<Bf16>();
  auto* codes = out.codes.data<std::uint8_t>();
  auto* scales = out.scales.data<float>();
  const std::int64_t outer = out.codes.dim(0), k = out.codes.dim(1);
  const auto number = [&](std::int64_t i, std::int64_t j) {
    return to_f32(args.transposed ? x[j * outer + i] : x[i * k + j]);
  };
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(out.scales.num_elements()));
  std::vector<bool> has_numbers(largest.size());
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < k; ++j) {
      const auto at = static_cast<std::size_t>(out.scale_at(i, j));
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(number(i, j)) & 0x7fffffffU;
      largest[at] = std::max(largest[at], magnitude);
      has_numbers[at] = true;
    }
  }
  std::vector<float> inverse(largest.size());
  for (std::size_t i = 0; i < largest.size(); ++i) {
    const Fp8Scale scale = fp8_scale(out.format, largest[i]);
    scales[i] = has_numbers[i] ? scale.value : 0.0F;
    inverse[i] = scale.inverse;
  }
  threads.run_chunked(outer, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < k; ++j) {
        const auto at = static_cast<std::size_t>(out.scale_at(i, j));
        codes[i * k + j] = fp8_code(out.format, number(i, j) * inverse[at]);
      }
    }
  });
}

/// The numbers of a matrix, (outer, k).
inline std::vector<float> numbers_of(ThreadPool& threads, const Fp8Matrix& matrix) {
  const std::int64_t outer = matrix.codes.dim(0), k = matrix.codes.dim(1);
  const auto* codes = matrix.codes.data<std::uint8_t>();
  const auto* scales = matrix.scales.data<float>();
  std::vector<float> numbers(static_cast<std::size_t>(outer * k));
  threads.run_chunked(outer, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < k; ++j) {
        numbers[static_cast<std::size_t>(i * k + j)] =
            fp8_value(matrix.format, codes[i * k + j]) * scales[matrix.scale_at(i, j)];
      }
    }
  });
  return numbers;
}

/// See ops::matmul_fp8.
inline void matmul_fp8(ThreadPool& threads, const MatmulFp8Args& args) {
  std::vector<float> a = numbers_of(threads, args.a), b = numbers_of(threads, args.b);
  MatmulArgs product = {{Transpose::kNT, args.m, args.n, args.k},
                        Tensor(a.data(), {Dtype::kF32, {args.m, args.k}}),
                        Tensor(b.data(), {Dtype::kF32, {args.n, args.k}}),
                        args.c,
                        args.bias,
                        args.accumulate,
                        args.residual};
  matmul(threads, product);
}

}  // namespace atl::ops::ref
