// Numbers of 8 bits on the fake GPU: the codes and scales of ref, and products of them.

#include "atoll/ops/fp8/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/device/gpu_support.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/fp8/numbers.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE5M2};

// Of every code, and of the number in the middle of two neighbours, which goes to the even one.
TEST(Fp8Numbers, AreTheNearestOfTheirFormat) {
  for (const Fp8Format format : kFormats) {
    const float most = fp8_most(format);
    int num_codes = 0;
    for (int code = 0; code < 0x80 && fp8_value(format, static_cast<std::uint8_t>(code)) <= most;
         ++code) {
      ++num_codes;
      const float value = fp8_value(format, static_cast<std::uint8_t>(code));
      EXPECT_EQ(fp8_code(format, value), code);
      EXPECT_EQ(fp8_code(format, -value), code | 0x80);
      EXPECT_EQ(fp8_value(format, static_cast<std::uint8_t>(code | 0x80)), -value);
      if (value == most) continue;
      const float next = fp8_value(format, static_cast<std::uint8_t>(code + 1));
      ASSERT_LT(value, next);
      const float middle = (value + next) / 2;
      EXPECT_EQ(fp8_code(format, middle), code + code % 2) << value;
      EXPECT_EQ(fp8_code(format, std::nextafter(middle, 0.0F)), code) << value;
      EXPECT_EQ(fp8_code(format, std::nextafter(middle, 1e9F)), code + 1) << value;
    }
    EXPECT_EQ(num_codes, format == Fp8Format::kE4M3 ? 127 : 124);
    const int largest = num_codes - 1;
    for (const float x : {most * 1.01F, most * 1.2F, 3e38F, std::numeric_limits<float>::infinity()})
      EXPECT_EQ(fp8_code(format, x), largest) << x;
    EXPECT_EQ(fp8_code(format, 1e-40F), 0);
    EXPECT_EQ(fp8_code(format, std::nanf("")), kFp8Nan);
    EXPECT_TRUE(std::isnan(fp8_value(format, kFp8Nan)));
    EXPECT_TRUE(std::isnan(fp8_value(format, 0xff)));
  }
}

struct Rounded {
  OwnedTensor<Bf16> x;
  OwnedTensor<std::uint8_t> codes;
  OwnedTensor<float> scales;
  bool operator==(const Rounded& other) const {
    // NaN is not itself.
    const auto bytes = scales.values.size() * sizeof(float);
    return codes == other.codes && scales.shape == other.scales.shape &&
           std::memcmp(scales.values.data(), other.scales.values.data(), bytes) == 0;
  }
};

Rounded make_rounded(std::int64_t rows, std::int64_t cols, Fp8Tile tile, bool transposed) {
  const std::int64_t outer = transposed ? cols : rows, k = transposed ? rows : cols;
  Rounded rounded{random_tensor<Bf16>({rows, cols}, 1), OwnedTensor<std::uint8_t>({outer, k}, 9),
                  OwnedTensor<float>(fp8_scales_spec(tile, outer, k).shape, -1.0F)};
  // Rows of which each has numbers of another size.
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const float size = std::ldexp(1.0F, static_cast<int>((i / cols * 7 + i % cols) % 40) - 30);
    rounded.x[i] = test::number<Bf16>(test::number<float>(rounded.x[i]) * size);
  }
  return rounded;
}

template <typename View>
Fp8Matrix matrix_of(Rounded& rounded, Fp8Format format, Fp8Tile tile, const View& view) {
  return {format, tile, view(rounded.codes), view(rounded.scales)};
}

struct Case {
  Fp8Format format;
  Fp8Tile tile;
};
constexpr Case kCases[] = {{Fp8Format::kE4M3, Fp8Tile::kTensor},
                           {Fp8Format::kE5M2, Fp8Tile::kTensor},
                           {Fp8Format::kE4M3, Fp8Tile::kRow},
                           {Fp8Format::kE4M3, Fp8Tile::kBlock}};

void check_rounding(const Rounded& start, const Case& how, bool transposed) {
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Rounded& s) {
        const auto view = [&](auto& one) { return gpu(one); };
        round_to_fp8(gpu.run, gpu(s.x), transposed, matrix_of(s, how.format, how.tile, view));
      },
      kDiffers);
  Rounded exact = start;
  test::TestRun host;
  const auto view = [](auto& one) { return one.view(); };
  round_to_fp8(host, exact.x, transposed, matrix_of(exact, how.format, how.tile, view));
  EXPECT_TRUE(got == exact) << static_cast<int>(how.tile) << (transposed ? " transposed" : "");
}

TEST(CudaFp8, RoundingGivesTheBitsOfRef) {
  for (const Case& how : kCases) {
    for (const auto& [rows, cols] : {std::pair{16, 16}, {48, 144}, {272, 128}, {128, 400}}) {
      for (const bool transposed : {false, true})
        check_rounding(make_rounded(rows, cols, how.tile, transposed), how, transposed);
    }
  }
}

// Every bf16 there is, in a matrix whose scale is 1.
TEST(CudaFp8, EveryNumberIsRoundedAsByRef) {
  for (const Fp8Format format : kFormats) {
    Rounded all = make_rounded(256, 256, Fp8Tile::kTensor, false);
    for (std::int64_t i = 0; i < 65536; ++i) {
      const Bf16 x = {static_cast<std::uint16_t>(i)};
      const bool is_small = std::abs(to_f32(x)) <= fp8_most(format);
      all.x[i] = is_small ? x : test::number<Bf16>(fp8_most(format));
    }
    check_rounding(all, {format, Fp8Tile::kTensor}, false);
    check_rounding(all, {format, Fp8Tile::kTensor}, true);
  }
}

TEST(CudaFp8, NumbersThatAreNotFiniteAreNotHidden) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const Case& how : kCases) {
      for (const bool transposed : {false, true}) {
        Rounded start = make_rounded(144, 144, how.tile, transposed);
        start.x[130 * 144 + 3] = test::number<Bf16>(bad);
        check_rounding(start, how, transposed);
        test::TestRun host;
        const auto view = [](auto& one) { return one.view(); };
        const Fp8Matrix out = matrix_of(start, how.format, how.tile, view);
        round_to_fp8(host, start.x, transposed, out);
        const std::int64_t at = transposed ? out.scale_at(3, 130) : out.scale_at(130, 3);
        EXPECT_TRUE(std::isnan(start.scales[at]));
      }
    }
  }
}

TEST(CudaFp8, MatricesOfZerosAndOfTheSmallestNumbersHaveAScale) {
  for (const float x : {0.0F, 1e-39F, -1e-38F}) {
    for (const Case& how : kCases) {
      Rounded start = make_rounded(16, 32, how.tile, false);
      std::fill(start.x.values.begin(), start.x.values.end(), test::number<Bf16>(x));
      check_rounding(start, how, false);
    }
  }
}

template <typename T>
struct Product {
  OwnedTensor<Bf16> x, w, dy;
  OwnedTensor<T> c;
  OwnedTensor<Bf16> bias, residual;
  bool operator==(const Product&) const = default;
};

// What a linear layer's three products give beside products in double of operands that are not
// rounded: each number is off by half of the last of its bits, and errors of both operands add.
template <typename T, typename Call, typename Exact>
double check_linear(Fp8Scaling scaling, Shape shape, const Call& call, const Exact& exact) {
  const Product<T> start{random_tensor<Bf16>({160, 48}, 1), random_tensor<Bf16>({80, 48}, 2),
                         random_tensor<Bf16>({160, 80}, 3), random_tensor<T>(shape, 4),
                         random_tensor<Bf16>({80}, 5),      random_tensor<Bf16>({160, 80}, 6)};
  const auto got = test::in_every_order(
      start, [&](Gpu& gpu, Product<T>& p) { call(gpu.run, scaling, p, gpu); }, kDiffers,
      /*has_products=*/true);
  Product<T> host = start;
  test::TestRun run;
  call(run, scaling, host, [](auto& one) { return one.view(); });
  // The host rounds to bf16 before it adds the residual, too.
  double largest = 0;
  for (const T& value : got.c.values) {
    largest = std::max(largest, std::abs(test::number<double>(value)));
  }
  EXPECT_LE(test::max_abs_difference(got.c, host.c.template as<double>()), largest * 0x1p-7);
  auto expected = start.c.template as<double>();
  exact(start, expected);
  double error = 0, square = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double off = test::number<double>(got.c[i]) - expected[i];
    error += off * off;
    square += expected[i] * expected[i];
  }
  return std::sqrt(error / square);
}

constexpr auto kForward = [](auto& run, Fp8Scaling scaling, auto& p, auto&& view) {
  linear_fp8(run, scaling, view(p.x), view(p.w), view(p.c), view(p.bias), view(p.residual));
};
constexpr auto kInput = [](auto& run, Fp8Scaling scaling, auto& p, auto&& view) {
  linear_fp8_backward_input(run, scaling, view(p.dy), view(p.w), view(p.c));
};
constexpr auto kWeight = [](auto& run, Fp8Scaling scaling, auto& p, auto&& view) {
  linear_fp8_backward_weight(run, scaling, view(p.dy), view(p.x), view(p.c));
};

double dot(const OwnedTensor<double>& a, const OwnedTensor<double>& b, std::int64_t a_at,
           std::int64_t a_step, std::int64_t b_at, std::int64_t b_step, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[a_at + i * a_step] * b[b_at + i * b_step];
  return sum;
}

TEST(CudaFp8, ProductsOfALinearLayerAreWithinTheErrorsOfTheirOperands) {
  for (const Fp8Scaling scaling : {Fp8Scaling::kTensor, Fp8Scaling::kBlocks}) {
    const double y = check_linear<Bf16>(
        scaling, {160, 80}, kForward, [](const Product<Bf16>& p, OwnedTensor<double>& c) {
          const auto x = p.x.as<double>(), w = p.w.as<double>(), bias = p.bias.as<double>(),
                     residual = p.residual.as<double>();
          for (std::int64_t i = 0; i < 160; ++i)
            for (std::int64_t j = 0; j < 80; ++j)
              c[i * 80 + j] = dot(x, w, i * 48, 1, j * 48, 1, 48) + bias[j] + residual[i * 80 + j];
        });
    const double dx = check_linear<Bf16>(scaling, {160, 48}, kInput,
                                         [](const Product<Bf16>& p, OwnedTensor<double>& c) {
                                           const auto dy = p.dy.as<double>(), w = p.w.as<double>();
                                           for (std::int64_t i = 0; i < 160; ++i)
                                             for (std::int64_t j = 0; j < 48; ++j)
                                               c[i * 48 + j] = dot(dy, w, i * 80, 1, j, 48, 80);
                                         });
    const double dw = check_linear<float>(scaling, {80, 48}, kWeight,
                                          [](const Product<float>& p, OwnedTensor<double>& c) {
                                            const auto dy = p.dy.as<double>(), x = p.x.as<double>();
                                            for (std::int64_t i = 0; i < 80; ++i)
                                              for (std::int64_t j = 0; j < 48; ++j)
                                                c[i * 48 + j] += dot(dy, x, i, 80, j, 48, 160);
                                          });
    // e4m3 is off by 2^-4 at most and by 0.026 of a number in the mean square, e5m2 by twice that.
    const double gradients = scaling == Fp8Scaling::kTensor ? 0.065 : 0.04;
    EXPECT_LE(y, 0.04);
    EXPECT_LE(dx, gradients);
    EXPECT_LE(dw, gradients);
    EXPECT_GE(dw, 0.02);  // they were rounded
  }
}

TEST(CudaFp8, WhatTensorCoresDoNotTakeIsRefused) {
  Gpu gpu;
  OwnedTensor<Bf16> x = random_tensor<Bf16>({16, 24}, 1), y({16, 16}), w({16, 24});
  EXPECT_THROW(linear_fp8(gpu.run, Fp8Scaling::kTensor, gpu(x), gpu(w), gpu(y)), Error);
}

struct RealOperands {
  Tensor x, w, dy, c, bias, residual;
};

// Sums are a GPU's own; the numbers that it multiplies are those of the codes.
void check_on_a_real_gpu(Fp8Scaling scaling) {
  if (!test::has_real_gpu()) GTEST_SKIP() << "there is no GPU here";
  Gpu gpu(test::kRealGpu);
  const auto [major, minor] = compute_capability();
  const std::string problem = fp8_problem(major, minor, scaling == Fp8Scaling::kBlocks);
  if (!problem.empty()) GTEST_SKIP() << problem;
  constexpr std::int64_t kRows = 272, kIn = 400, kOut = 144;
  const auto compare = [&]<typename T>(OwnedTensor<T> c, const auto& call) {
    OwnedTensor<Bf16> x = random_tensor<Bf16>({kRows, kIn}, 1),
                      w = random_tensor<Bf16>({kOut, kIn}, 2),
                      dy = random_tensor<Bf16>({kRows, kOut}, 3),
                      bias = random_tensor<Bf16>({kOut}, 5),
                      residual = random_tensor<Bf16>({kRows, kOut}, 6);
    OwnedTensor<T> expected = c;
    test::TestRun host;
    call(host, RealOperands{x, w, dy, expected, bias, residual});
    Gpu device(test::kRealGpu);
    call(device.run,
         RealOperands{device(x), device(w), device(dy), device(c), device(bias), device(residual)});
    device.finish();
    double largest = 0;
    for (const T& value : expected.values) {
      largest = std::max(largest, std::abs(test::number<double>(value)));
    }
    EXPECT_LE(test::max_abs_difference(c, expected.template as<double>()), largest * 0x1p-7);
  };
  compare(OwnedTensor<Bf16>({kRows, kOut}), [&](Run& run, const RealOperands& p) {
    linear_fp8(run, scaling, p.x, p.w, p.c, p.bias, p.residual);
  });
  compare(OwnedTensor<Bf16>({kRows, kIn}), [&](Run& run, const RealOperands& p) {
    linear_fp8_backward_input(run, scaling, p.dy, p.w, p.c);
  });
  compare(random_tensor<float>({kOut, kIn}, 4), [&](Run& run, const RealOperands& p) {
    linear_fp8_backward_weight(run, scaling, p.dy, p.x, p.c);
  });
}

TEST(RealGpuFp8, ProductsAreThoseOfTheHost) {
  check_on_a_real_gpu(Fp8Scaling::kTensor);
}
TEST(RealGpuFp8, ProductsInBlocksAreThoseOfTheHost) {
  check_on_a_real_gpu(Fp8Scaling::kBlocks);
}

// More elements than all blocks that look for the largest take in one turn.
TEST(RealGpuFp8, TheLargestOfManyNumbersIsFound) {
  if (!test::has_real_gpu()) GTEST_SKIP() << "there is no GPU here";
  constexpr std::int64_t kRows = 4096, kCols = 4096;
  for (const std::int64_t place : {std::int64_t{5}, kRows * kCols / 2 + 8, kRows * kCols - 1}) {
    Rounded rounded = make_rounded(16, 16, Fp8Tile::kTensor, false);
    rounded.x = OwnedTensor<Bf16>({kRows, kCols}, test::number<Bf16>(1.0F));
    rounded.codes = OwnedTensor<std::uint8_t>({kRows, kCols});
    rounded.x[place] = test::number<Bf16>(-896.0F);
    Gpu gpu(test::kRealGpu);
    const auto view = [&](auto& one) { return gpu(one); };
    round_to_fp8(gpu.run, gpu(rounded.x), false,
                 matrix_of(rounded, Fp8Format::kE4M3, Fp8Tile::kTensor, view));
    gpu.finish();
    EXPECT_EQ(rounded.scales[0], 2.0F) << place;
    EXPECT_EQ(rounded.codes[place], 0xfe) << place;
  }
}

}  // namespace
}  // namespace atl::ops
