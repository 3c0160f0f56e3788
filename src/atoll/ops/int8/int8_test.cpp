#include "atoll/ops/int8/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/ops/int8/ref.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

// An Int8Matrix that owns its memory.
struct OwnedInt8 {
  explicit OwnedInt8(Shape shape)
      : values(shape),
        scales(int8_scales_spec(shape).shape),
        matrix{values.view(), scales.view()} {}
  OwnedTensor<std::uint8_t> values;
  OwnedTensor<float> scales;
  Int8Matrix matrix;
};

// The largest sum of magnitudes of any dot product, times what k roundings of f32 can do to it, and
// as much again for how the two sides round differently.
double tolerance(std::int64_t k) {
  return 2 * static_cast<double>(k) * static_cast<double>(k) * 0x1p-24;
}

TEST(RoundToInt8, IsWithinHalfAFactorAndUsesTheWholeRange) {
  TestRun run;
  const Shape shape = {5, 150};  // two whole groups and one of 22
  auto x = random_tensor<float>(shape, 1);
  for (std::int64_t i = 64; i < 128; ++i) x[i] = 0;  // a group of nothing but zeros
  OwnedInt8 w(shape);
  const RoundingError error = round_to_int8(run, x, w.matrix);
  double squares = 0;
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t g = 0; g < 3; ++g) {
      const float scale = w.scales[row * 3 + g];
      int largest = 0;
      for (std::int64_t c = g * kInt8Group; c < std::min<std::int64_t>((g + 1) * 64, 150); ++c) {
        const double off = x[row * 150 + c] - ref::int8_element(w.matrix, row, c);
        squares += off * off;
        EXPECT_LE(std::abs(off), 0.5 * scale * (1 + 1e-5)) << row << ", " << c;
        largest = std::max(largest, std::abs(static_cast<std::int8_t>(w.values[row * 150 + c])));
      }
      EXPECT_EQ(largest, row == 0 && g == 1 ? 0 : 127);
    }
  }
  // f32 products on both sides.
  EXPECT_NEAR(error.error, squares, 1e-5 * squares);
  // Uniform within a step: its square over 12, of numbers uniform in [-1, 1].
  EXPECT_NEAR(error.error / error.square, 1.0 / 127 / 127 / 4, 0.2 / 127 / 127 / 4);
}

TEST(RoundToInt8, KeepsTheSmallestNumbersInRange) {
  TestRun run;
  OwnedTensor<float> x({1, 3});
  x.values = {std::numeric_limits<float>::denorm_min(), -1e-40F, 1e-39F};
  OwnedInt8 w(x.shape);
  round_to_int8(run, x, w.matrix);
  for (std::int64_t c = 0; c < 3; ++c) {
    // Half a factor, and what rounding the factor to a subnormal costs.
    EXPECT_NEAR(ref::int8_element(w.matrix, 0, c), x[c], 0.5 * 1e-39 / 127 + 127 * 0x1p-150) << c;
  }
}

TEST(RoundToInt8, RefusesWeightsThatAreNotFinite) {
  TestRun run;
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    OwnedTensor<float> x({2, 70}, 1.0F);
    x[139] = bad;
    OwnedInt8 w(x.shape);
    EXPECT_THROW(round_to_int8(run, x, w.matrix), Error);
  }
}

class Int8Targets : public test::EachTarget {};

TEST_P(Int8Targets, ProductsAreThoseOfTheWidenedWeights) {
  TestRun run;
  for (const std::int64_t k : {1, 15, 64, 65, 200, 1100}) {
    for (const std::int64_t n : {1, 4, 7, 300}) {
      const auto exact = random_tensor<float>({n, k}, 2);
      OwnedInt8 w({n, k});
      round_to_int8(run, OwnedTensor<float>(exact), w.matrix);
      for (const std::int64_t m : {1, 2, 3, 8, 9}) {
        auto x = random_tensor<float>({m, k}, 3);
        auto bias = random_tensor<float>({n}, 4);
        OwnedTensor<float> y({m, n}, 77.0F);
        matmul_int8(run, x, w.matrix, y, bias);
        const auto wide = x.as<double>();
        const auto wide_bias = bias.as<double>();
        OwnedTensor<double> expected({m, n});
        ref::matmul_int8<double>(run.run.threads(), m, wide.values.data(), w.matrix,
                                 wide_bias.values.data(), expected.values.data());
        EXPECT_LT(max_abs_difference(y, expected), tolerance(k)) << m << " " << n << " " << k;
      }
    }
  }
}

TEST_P(Int8Targets, NothingOutsideTheOperandsIsRead) {
  TestRun run;
  const std::int64_t k = 67;
  OwnedInt8 w({5, k});
  round_to_int8(run, random_tensor<float>({5, k}, 2).view(), w.matrix);
  OwnedTensor<float> once({1, 5}), twice({1, 5});
  matmul_int8(run, random_tensor<float>({1, k}, 3).view(), w.matrix, once);
  // What is behind the last column would come in here; of the weights, ASan would see it.
  OwnedTensor<float> wider({2, k}, std::nanf(""));
  const auto x = random_tensor<float>({1, k}, 3);
  std::copy(x.values.begin(), x.values.end(), wider.values.begin());
  matmul_int8(run, Tensor(wider.values.data(), {Dtype::kF32, {1, k}}), w.matrix, twice);
  EXPECT_EQ(once, twice);
}

INSTANTIATE_TEST_SUITE_P(All, Int8Targets, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         test::target_name);

TEST(MatmulInt8, BitsDoNotDependOnTheNumberOfThreads) {
  const Shape shape = {1030, 700};  // many tasks, the last of them shorter
  TestRun first(1);
  OwnedInt8 w(shape);
  round_to_int8(first, random_tensor<float>(shape, 2).view(), w.matrix);
  for (const std::int64_t m : {1, 20}) {
    auto x = random_tensor<float>({m, 700}, 3);
    OwnedTensor<float> alone({m, 1030});
    matmul_int8(first, x, w.matrix, alone);
    for (const int threads : {2, 3}) {
      TestRun run(threads);
      OwnedTensor<float> y({m, 1030});
      matmul_int8(run, x, w.matrix, y);
      EXPECT_EQ(alone, y) << threads;
    }
  }
}

TEST(MatmulInt8, TakesTheScratchItSaysAndNoMore) {
  const Shape shape = {3000, 700};  // more than is widened at once
  const std::size_t bytes = matmul_int8_scratch_bytes({Dtype::kF32, {20, 700}}, shape);
  TestRun run(2, bytes);
  OwnedInt8 w(shape);
  round_to_int8(run, random_tensor<float>(shape, 2).view(), w.matrix);
  auto x = random_tensor<float>({20, 700}, 3);
  OwnedTensor<float> y({20, 3000}), expected({20, 3000});
  matmul_int8(run, x, w.matrix, y);
  ref::matmul_int8<float>(run.run.threads(), 20, x.values.data(), w.matrix, nullptr,
                          expected.values.data());
  EXPECT_LT(max_abs_difference(y, expected), tolerance(700));
}

// The ways to multiply that this machine has.
std::vector<Int8Arithmetic> arithmetics() {
  std::vector<Int8Arithmetic> found;
  for (const auto one : {Int8Arithmetic::kVector, Int8Arithmetic::kVnni, Int8Arithmetic::kAmx}) {
    if (has_int8_arithmetic(one)) found.push_back(one);
  }
  return found;
}

class RoundedProducts : public test::EachTarget {
 protected:
  void TearDown() override {
    set_int8_arithmetic(Int8Arithmetic::kF32);
    test::EachTarget::TearDown();
  }
};

TEST_P(RoundedProducts, HaveTheBitsOfTheReferenceInEachArithmetic) {
  TestRun run;
  for (const std::int64_t k : {1, 63, 64, 65, 200, 1100}) {
    for (const std::int64_t n : {1, 15, 16, 17, 300}) {
      OwnedInt8 w({n, k});
      round_to_int8(run, random_tensor<float>({n, k}, 2).view(), w.matrix);
      for (const std::int64_t m : {1, 2, 5, 16, 17, 70}) {
        auto x = random_tensor<float>({m, k}, 3);
        for (std::int64_t i = 0; i < std::min<std::int64_t>(k, 64); ++i) x[i] = 0;  // a group
        auto bias = random_tensor<float>({n}, 4);
        OwnedTensor<float> expected({m, n});
        ref::matmul_rounded<float>(run.run.threads(), m, x.values.data(), w.matrix,
                                   bias.values.data(), expected.values.data());
        for (const Int8Arithmetic arithmetic : arithmetics()) {
          set_int8_arithmetic(arithmetic);
          OwnedTensor<float> y({m, n}, 77.0F);
          matmul_int8(run, x, w.matrix, y, bias);
          EXPECT_EQ(y, expected) << int8_arithmetic_name(arithmetic) << " " << m << " " << n << " "
                                 << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundedProducts,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

class RoundedProduct : public ::testing::Test {
 protected:
  void TearDown() override { set_int8_arithmetic(Int8Arithmetic::kF32); }
};

TEST_F(RoundedProduct, IsWithinHalfAStepOfEachActivation) {
  TestRun run;
  const std::int64_t m = 6, n = 40, k = 300;
  OwnedInt8 w({n, k});
  round_to_int8(run, random_tensor<float>({n, k}, 2).view(), w.matrix);
  auto x = random_tensor<float>({m, k}, 3);
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] *= i % 7 == 0 ? 50.0F : 0.01F;
  OwnedTensor<double> exact({m, n});
  ref::matmul_int8<double>(run.run.threads(), m, x.as<double>().values.data(), w.matrix, nullptr,
                           exact.values.data());
  OwnedTensor<float> y({m, n});
  set_int8_arithmetic(Int8Arithmetic::kAuto);
  matmul_int8(run, x, w.matrix, y);
  double largest = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    const ref::RoundedRow row = ref::rounded_row(x.values.data() + i * k, k);
    for (std::int64_t j = 0; j < n; ++j) {
      double bound = 0, size = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        const double weight = std::abs(ref::int8_element(w.matrix, j, c));
        bound += weight * 0.5 * row.scales[static_cast<std::size_t>(c / kInt8Group)];
        size += weight * std::abs(x[i * k + c]);
      }
      // And what f32 rounds: scale, factor and their product with x; of each group two products;
      // the sum of five groups.
      bound += (bound + size) * (4 + 2 + 5) * 0x1p-24;
      EXPECT_LE(std::abs(y[i * n + j] - exact[i * n + j]), bound) << i << ", " << j;
      largest = std::max(largest, std::abs(y[i * n + j] - exact[i * n + j]) / bound);
    }
  }
  EXPECT_GT(largest, 0.01);  // errors of random signs, but activations are rounded
}

TEST_F(RoundedProduct, ARowsBitsDependOnThatRowAlone) {
  const std::int64_t n = 1030, k = 700;  // many tasks, the last of them shorter
  TestRun first(1);
  OwnedInt8 w({n, k});
  round_to_int8(first, random_tensor<float>({n, k}, 2).view(), w.matrix);
  auto x = random_tensor<float>({70, k}, 3);
  for (const Int8Arithmetic arithmetic : arithmetics()) {
    set_int8_arithmetic(arithmetic);
    OwnedTensor<float> together({70, n});
    matmul_int8(first, x, w.matrix, together);
    for (const int threads : {1, 3}) {
      TestRun run(threads);
      for (const std::int64_t row : {0, 15, 16, 69}) {
        OwnedTensor<float> alone({1, n});
        matmul_int8(run, x.view().rows(row, row + 1), w.matrix, alone);
        EXPECT_TRUE(
            std::equal(alone.values.begin(), alone.values.end(), together.values.begin() + row * n))
            << int8_arithmetic_name(arithmetic) << " " << threads << " " << row;
      }
    }
  }
}

TEST_F(RoundedProduct, OfWhatIsNotFiniteIsNotANumber) {
  TestRun run;
  OwnedInt8 w({20, 130});
  round_to_int8(run, random_tensor<float>({20, 130}, 2).view(), w.matrix);
  for (const Int8Arithmetic arithmetic : arithmetics()) {
    set_int8_arithmetic(arithmetic);
    for (const float bad : {std::nanf(""), -std::nanf(""), INFINITY, -INFINITY}) {
      auto x = random_tensor<float>({3, 130}, 3);
      x[130 + 129] = bad;
      OwnedTensor<float> y({3, 20});
      matmul_int8(run, x, w.matrix, y);
      for (std::int64_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), i / 20 == 1) << int8_arithmetic_name(arithmetic) << " " << i;
      }
    }
  }
}

TEST_F(RoundedProduct, TakesTheScratchItSaysAndNoMore) {
  const Shape shape = {50, 700};
  // Few rows: more take more when activations are not rounded.
  TestRun run(2, matmul_int8_scratch_bytes({Dtype::kF32, {8, 700}}, shape));
  OwnedInt8 w(shape);
  round_to_int8(run, random_tensor<float>(shape, 2).view(), w.matrix);
  auto x = random_tensor<float>({8, 700}, 3);
  for (const Int8Arithmetic arithmetic : arithmetics()) {
    set_int8_arithmetic(arithmetic);
    OwnedTensor<float> y({8, 50});
    matmul_int8(run, x, w.matrix, y);
    EXPECT_NE(y[0], 0);
  }
}

TEST_F(RoundedProduct, IsTheFastestThatTheCpuHasWhereNoneIsForced) {
  EXPECT_EQ(int8_arithmetic(16), Int8Arithmetic::kF32);
  for (const auto one : {Int8Arithmetic::kF32, Int8Arithmetic::kVector, Int8Arithmetic::kVnni,
                         Int8Arithmetic::kAmx, Int8Arithmetic::kAuto}) {
    EXPECT_EQ(int8_arithmetic_named(int8_arithmetic_name(one)), one);
    if (!has_int8_arithmetic(one)) {
      EXPECT_THROW(set_int8_arithmetic(one), Error);
      continue;
    }
    set_int8_arithmetic(one);
    if (one == Int8Arithmetic::kAuto) continue;
    EXPECT_EQ(int8_arithmetic(1), one);
    EXPECT_EQ(int8_arithmetic(16), one);
  }
  EXPECT_EQ(int8_arithmetic(16), arithmetics().back());
  EXPECT_EQ(int8_arithmetic(1), has_int8_arithmetic(Int8Arithmetic::kVnni)
                                    ? Int8Arithmetic::kVnni
                                    : Int8Arithmetic::kVector);
}

TEST(EmbeddingInt8, GivesTheRowsOfTheTokens) {
  TestRun run;
  OwnedInt8 table({9, 70});
  round_to_int8(run, random_tensor<float>({9, 70}, 2).view(), table.matrix);
  OwnedTensor<std::int32_t> tokens({1, 3});
  tokens.values = {8, 0, 8};
  OwnedTensor<float> y({1, 3, 70});
  embedding_int8(run, tokens, table.matrix, y);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t c = 0; c < 70; ++c) {
      EXPECT_EQ(y[t * 70 + c], ref::int8_element(table.matrix, tokens[t], c));
    }
  }
  tokens[1] = 9;
  EXPECT_THROW(embedding_int8(run, tokens, table.matrix, y), Error);
  tokens[1] = -1;
  EXPECT_THROW(embedding_int8(run, tokens, table.matrix, y), Error);
}

}  // namespace
}  // namespace atl::ops
