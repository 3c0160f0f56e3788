// Products of bf16 on AMX against ref: rows, columns and terms that fill no tile, operands of two
// terms, and bits that do not depend on threads.

#include <gtest/gtest.h>

#include "atoll/ops/matmul/cpu_amx.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/testing.h"
#include "atoll/simd/amx.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

struct Case {
  Transpose transpose;
  std::int64_t m, n, k;
};

// Whole tiles, and each of m, n, k one more or less; several stretches and panels of k; several
// blocks of rows and columns.
constexpr Case kCases[] = {
    {Transpose::kNT, 32, 32, 32},    {Transpose::kNN, 33, 64, 31},
    {Transpose::kTN, 64, 33, 65},    {Transpose::kNT, 63, 40, 1},
    {Transpose::kNN, 17, 9, 3},      {Transpose::kTN, 1, 1, 1},
    {Transpose::kNT, 300, 400, 385}, {Transpose::kNN, 530, 70, 900},
    {Transpose::kTN, 257, 385, 40},  {Transpose::kTN, 385, 257, 790},
    {Transpose::kNT, 40, 50, 2100},  {Transpose::kNN, 40, 50, 8225},
    {Transpose::kTN, 40, 50, 3000},  {Transpose::kTN, 50, 40, 3000},
    {Transpose::kTN, 600, 300, 800}, {Transpose::kTN, 300, 600, 800},
    {Transpose::kNT, 1100, 900, 70}, {Transpose::kNN, 1100, 300, 768},
};

// Of a sum of k products of numbers below 1, bias and start: each of its additions rounds by half a
// unit of the 24th bit of at most k + 2; operands and products below 1.2e-38 count as zero.
double tolerance(const Case& sizes) {
  const auto terms = static_cast<double>(sizes.k + 2);
  return terms * terms * 0x1p-24;
}

Shape shape_of_a(const Case& sizes) {
  return sizes.transpose == Transpose::kTN ? Shape{sizes.k, sizes.m} : Shape{sizes.m, sizes.k};
}
Shape shape_of_b(const Case& sizes) {
  return sizes.transpose == Transpose::kNT ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n};
}

class AmxMatmulTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!simd::has_amx()) GTEST_SKIP() << "this CPU has no AMX";
  }
};

template <typename TC>
struct Product {
  Case sizes;
  OwnedTensor<Bf16> a, b, bias;
  OwnedTensor<TC> start;

  Product(const Case& product, bool with_bias)
      : sizes(product),
        a(random_tensor<Bf16>(shape_of_a(product), 1)),
        b(random_tensor<Bf16>(shape_of_b(product), 2)),
        bias(random_tensor<Bf16>({with_bias ? product.n : 0}, 3)),
        start(random_tensor<TC>({product.m, product.n}, 4)) {}

  OwnedTensor<TC> compute(int threads, bool accumulate) {
    TestRun run(threads);
    OwnedTensor<TC> c = start;
    cpu::AmxMatmul product;
    product.shape = {sizes.transpose, sizes.m, sizes.n, sizes.k};
    product.a = a.values.data();
    product.lda = a.shape.dim(1);
    product.b = b.values.data();
    product.ldb = b.shape.dim(1);
    product.c = c;
    product.ldc = sizes.n;
    if (bias.size() > 0) product.bias = bias;
    product.accumulate = accumulate;
    cpu::multiply_amx(run, product);
    return c;
  }

  OwnedTensor<double> truth(bool accumulate) {
    TestRun run;
    OwnedTensor<double> c = start.template as<double>();
    OwnedTensor<double> a64 = a.as<double>(), b64 = b.as<double>(), bias64 = bias.as<double>();
    matmul(run, sizes.transpose, a64, b64, c, bias.size() > 0 ? bias64.view() : Tensor(),
           accumulate);
    return c;
  }
};

TEST_F(AmxMatmulTest, SumsInF32AndRoundsOnce) {
  for (const Case& sizes : kCases) {
    for (const bool more : {false, true}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, {}", sizes.m, sizes.n, sizes.k, more));
      Product<float> gradient(sizes, more);
      EXPECT_LE(test::max_abs_difference(gradient.compute(2, more), gradient.truth(more)),
                tolerance(sizes));
      if (sizes.transpose == Transpose::kTN) continue;
      Product<Bf16> stored(sizes, more);
      EXPECT_LE(test::max_error_beyond_rounding(stored.compute(2, more), stored.truth(more)),
                tolerance(sizes));
    }
  }
}

TEST_F(AmxMatmulTest, TheNumberOfThreadsChangesNoBit) {
  for (const Case& sizes : kCases) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", sizes.m, sizes.n, sizes.k));
    Product<float> product(sizes, true);
    const OwnedTensor<float> one = product.compute(1, true);
    EXPECT_TRUE(one == product.compute(2, true));
    EXPECT_TRUE(one == product.compute(3, true));
    EXPECT_TRUE(one == product.compute(7, true));
    if (sizes.transpose == Transpose::kTN) continue;
    Product<Bf16> stored(sizes, true);
    EXPECT_TRUE(stored.compute(1, true) == stored.compute(5, true));
  }
}

// Numbers whose lower halves decide: without these the error would be a 256th of a term.
TEST_F(AmxMatmulTest, AnOperandOfTwoTermsHasSixteenBits) {
  for (const Case& sizes : kCases) {
    if (sizes.transpose == Transpose::kNT) continue;
    SCOPED_TRACE(fmt::format("{} x {} x {}", sizes.m, sizes.n, sizes.k));
    const Shape stored = shape_of_a(sizes);
    const std::int64_t cols = stored.dim(1), padded = (cols + 31) / 32 * 32;
    auto a = random_tensor<float>(stored, 1);
    auto b = random_tensor<Bf16>(shape_of_b(sizes), 2);
    OwnedTensor<float> split({stored.dim(0), padded});  // as two bf16 in the place of each
    auto* halves = reinterpret_cast<Bf16*>(split.values.data());
    OwnedTensor<double> exact(stored);
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const std::int64_t at = i / cols * padded * 2 + i % cols / 32 * 64 + i % cols % 32;
      halves[at] = to_bf16(a[i]);
      halves[at + 32] = to_bf16(a[i] - to_f32(halves[at]));
      exact[i] =
          static_cast<double>(to_f32(halves[at])) + static_cast<double>(to_f32(halves[at + 32]));
      EXPECT_NEAR(exact[i], a[i], 0x1p-16);
    }
    OwnedTensor<float> one({sizes.m, sizes.n}, 0.25F);
    OwnedTensor<float> two = one;
    const auto multiply = [&](OwnedTensor<float>& c, int threads) {
      TestRun run(threads);
      cpu::AmxMatmul product;
      product.shape = {sizes.transpose, sizes.m, sizes.n, sizes.k};
      product.a = halves;
      product.lda = 2 * padded;
      product.two_terms = true;
      product.b = b.values.data();
      product.ldb = sizes.n;
      product.c = c;
      product.ldc = sizes.n;
      product.accumulate = true;
      cpu::multiply_amx(run, product);
    };
    multiply(one, 1);
    multiply(two, 3);
    EXPECT_TRUE(one == two);
    OwnedTensor<double> truth({sizes.m, sizes.n}, 0.25);
    auto b64 = b.as<double>();
    TestRun run;
    matmul(run, sizes.transpose, exact, b64, truth, {}, true);
    EXPECT_LE(test::max_abs_difference(one, truth), 2 * tolerance(sizes));
  }
}

// What lies beyond a row must not be multiplied, not even by zero.
TEST_F(AmxMatmulTest, ReadsNothingBeyondItsOperands) {
  const Case sizes = {Transpose::kNT, 33, 32, 33};
  Product<float> product(sizes, false);
  const OwnedTensor<float> clean = product.compute(1, false);
  product.a.values.resize(product.a.values.size() + 4096, to_bf16(NAN));
  product.b.values.resize(product.b.values.size() + 4096, to_bf16(NAN));
  EXPECT_TRUE(clean == product.compute(1, false));
}

}  // namespace
}  // namespace atl::ops
