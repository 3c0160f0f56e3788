// Products of bf16 operands by the library's own arithmetic, and which arithmetic is taken.

#include <gtest/gtest.h>

#include <map>

#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/matmul/cpu_bf16.h"
#include "atoll/ops/matmul/cpu_widened.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/profile.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

struct Case {
  Transpose transpose;
  std::int64_t m, n, k;
};

constexpr Case kCases[] = {
    {Transpose::kNT, 9, 7, 5},
    {Transpose::kNN, 64, 65, 33},
    {Transpose::kTN, 33, 129, 17},
    {Transpose::kNT, 300, 400, 3},
    {Transpose::kNN, 530, 70, 100},
    {Transpose::kTN, 257, 385, 40},
    // Sums of several panels.
    {Transpose::kNT, 40, 50, 2100},
    {Transpose::kNN, 40, 50, 1025},
    {Transpose::kTN, 40, 50, 3000},
    // Several blocks of rows on one packed b.
    {Transpose::kNT, 1100, 900, 70},
};

using Multiply = Declined (*)(Run& run, const MatmulArgs& args);
// Whichever of them this CPU takes, the other must not rot.
constexpr Multiply kBoth[] = {cpu::multiply_bf16, cpu::matmul_widened};

template <typename TC>
struct Product {
  Case sizes;
  OwnedTensor<Bf16> a, b, bias;
  OwnedTensor<TC> start;

  Product(const Case& product, bool with_bias)
      : sizes(product),
        a(random_tensor<Bf16>(product.transpose == Transpose::kTN ? Shape{product.k, product.m}
                                                                  : Shape{product.m, product.k},
                              1)),
        b(random_tensor<Bf16>(product.transpose == Transpose::kNT ? Shape{product.n, product.k}
                                                                  : Shape{product.k, product.n},
                              2)),
        bias(random_tensor<Bf16>({with_bias ? product.n : 0}, 3)),
        start(random_tensor<TC>({product.m, product.n}, 4)) {}

  OwnedTensor<TC> compute(Multiply multiply, int threads, bool accumulate) {
    TestRun run(threads);
    OwnedTensor<TC> c = start;
    const MatmulArgs args = {{sizes.transpose, sizes.m, sizes.n, sizes.k}, a,         b, c,
                             bias.size() > 0 ? bias.view() : Tensor(),     accumulate};
    EXPECT_EQ(multiply(run, args), kServed);
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

  // Of a sum of k products of numbers below 1, bias and start: each of its additions rounds by
  // half a unit of the 24th bit of at most k + 2.
  double tolerance() const {
    const auto terms = static_cast<double>(sizes.k + 2);
    return terms * terms * 0x1p-24;
  }
};

class LibraryBf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::library_has_bf16()) GTEST_SKIP() << "the library has no bf16 on this CPU";
  }
  void TearDown() override { reset_bf16_arithmetic(); }
};

TEST_F(LibraryBf16, SumsInF32AndRoundsOnce) {
  for (const Multiply multiply : kBoth) {
    for (const Case& sizes : kCases) {
      for (const bool more : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, {}", sizes.m, sizes.n, sizes.k, more));
        Product<Bf16> stored(sizes, more);
        EXPECT_LE(
            test::max_error_beyond_rounding(stored.compute(multiply, 2, more), stored.truth(more)),
            stored.tolerance());
        Product<float> gradient(sizes, more);
        EXPECT_LE(
            test::max_abs_difference(gradient.compute(multiply, 2, more), gradient.truth(more)),
            gradient.tolerance());
      }
    }
  }
}

TEST_F(LibraryBf16, TheNumberOfThreadsChangesNoBit) {
  for (const Multiply multiply : kBoth) {
    for (const Case& sizes : kCases) {
      Product<Bf16> product(sizes, true);
      const OwnedTensor<Bf16> one = product.compute(multiply, 1, true);
      EXPECT_TRUE(one == product.compute(multiply, 2, true));
      EXPECT_TRUE(one == product.compute(multiply, 3, true));
    }
  }
}

std::string who_multiplies() {
  TestRun run;
  OpProfile profile;
  run.run.profile = &profile;
  auto a = random_tensor<Bf16>({32, 48}, 1);
  auto b = random_tensor<Bf16>({40, 48}, 2);
  OwnedTensor<Bf16> c({32, 40});
  matmul(run, Transpose::kNT, a, b, c);
  return profile.rows().at(0).implementation;
}

TEST_F(LibraryBf16, WhatWasSetIsTaken) {
  set_bf16_arithmetic(Bf16Arithmetic::kLibrary);
  EXPECT_EQ(who_multiplies(), "bf16");
  set_bf16_arithmetic(Bf16Arithmetic::kF32);
  EXPECT_EQ(who_multiplies(), "widened");
  if (!has_bf16_arithmetic(Bf16Arithmetic::kAmx)) {
    EXPECT_THROW(set_bf16_arithmetic(Bf16Arithmetic::kAmx), Error);
    return;
  }
  set_bf16_arithmetic(Bf16Arithmetic::kAmx);
  EXPECT_EQ(who_multiplies(), "amx");
}

TEST_F(LibraryBf16, TheFastestOneIsTakenWhereNothingWasSet) {
  reset_bf16_arithmetic();
  const double library = bf16_speedup(Bf16Arithmetic::kLibrary);
  const double amx = bf16_speedup(Bf16Arithmetic::kAmx);
  const Bf16Arithmetic without_amx =
      library >= 1.2 ? Bf16Arithmetic::kLibrary : Bf16Arithmetic::kF32;
  const bool takes_amx = amx >= 1.2 * (library >= 1.2 ? library : 1.0);
  const Bf16Arithmetic expected = takes_amx ? Bf16Arithmetic::kAmx : without_amx;
  EXPECT_EQ(bf16_arithmetic(), expected);
  const std::map<Bf16Arithmetic, std::string> names = {{Bf16Arithmetic::kF32, "widened"},
                                                       {Bf16Arithmetic::kLibrary, "bf16"},
                                                       {Bf16Arithmetic::kAmx, "amx"}};
  EXPECT_EQ(who_multiplies(), names.at(expected));
  EXPECT_EQ(bf16_speedup(Bf16Arithmetic::kLibrary), library);  // measured once
}

TEST(Bf16Arithmetic, HasANameEach) {
  for (const auto one : {Bf16Arithmetic::kF32, Bf16Arithmetic::kLibrary, Bf16Arithmetic::kAmx}) {
    EXPECT_EQ(bf16_arithmetic_named(bf16_arithmetic_name(one)), one);
  }
}

// What generation with bf16 weights does: everything else is f32. Rows by each way of a product,
// and no terms at all, which is left to ref.
TEST(MatmulOfBf16Weights, IsThatOfTheWidenedWeights) {
  TestRun run(2);
  for (const std::int64_t m : {1, 3, 8, 9, 64}) {
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{1, 5}, {70, 33}, {385, 700}, {7, 0}}) {
      auto x = random_tensor<float>({m, k}, 1);
      auto narrow_x = random_tensor<Bf16>({m, k}, 1);
      auto weight = random_tensor<Bf16>({n, k}, 2);
      auto bias = random_tensor<float>({n}, 3);  // which bf16 would round
      OwnedTensor<double> exact({m, n});
      OwnedTensor<float> c({m, n});
      const auto multiply = [&](auto& a) {
        auto a64 = a.template as<double>();
        auto w64 = weight.template as<double>();
        auto b64 = bias.template as<double>();
        matmul(run, Transpose::kNT, a64, w64, exact, b64);
        matmul(run, Transpose::kNT, a, weight, c, bias);
      };
      const auto terms = static_cast<double>(k + 1);
      multiply(x);
      EXPECT_LE(test::max_abs_difference(c, exact), terms * terms * 0x1p-24) << m << ' ' << n;
      multiply(narrow_x);
      EXPECT_LE(test::max_abs_difference(c, exact), terms * terms * 0x1p-24) << m << ' ' << n;
    }
  }
}

TEST(Bf16Arithmetic, WithoutInstructionsNothingIsMeasured) {
  if (cpu_features().find("avx512_bf16") != std::string::npos) {
    EXPECT_GT(bf16_speedup(Bf16Arithmetic::kLibrary), 0);
  } else {
    EXPECT_EQ(bf16_speedup(Bf16Arithmetic::kLibrary), 0);
    EXPECT_EQ(bf16_speedup(Bf16Arithmetic::kAmx), 0);
    EXPECT_EQ(bf16_arithmetic(), Bf16Arithmetic::kF32);
  }
}

}  // namespace
}  // namespace atl::ops
