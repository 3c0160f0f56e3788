#include "atoll/ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <limits>

#include "atoll/ops/elementwise/ref.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kSizes[] = {0, 1, 3, 17, 65, 255, 16384 + 5, 2 * 16384 + 31};

TEST(Add, IsExactAndMayWriteOverAnOperand) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    auto a = random_tensor<float>({n}, 1);
    auto b = random_tensor<float>({n}, 2);
    OwnedTensor<float> y({n}), expected({n});
    ref::add<float>(a, b, expected);
    add(run, a, b, y);
    EXPECT_EQ(y, expected);
    auto in_place = a;
    add(run, in_place, b, in_place);
    EXPECT_EQ(in_place, expected);
    in_place = b;
    add(run, a, in_place, in_place);
    EXPECT_EQ(in_place, expected);
  }
}

template <typename T>
void check_scale() {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    auto x = random_tensor<T>({n}, 1);
    OwnedTensor<T> y({n}), expected({n});
    ref::scale<T>(0.3, x, expected);
    scale(run, 0.3, x, y);
    EXPECT_EQ(y, expected);
    scale(run, 0.3, x, x);
    EXPECT_EQ(x, expected) << "in place";
  }
}

TEST(Scale, IsRefInEveryDtype) {
  check_scale<float>();
  check_scale<Bf16>();
  check_scale<double>();
}

TEST(Add, ServesDouble) {
  TestRun run;
  OwnedTensor<double> a({3}, 1.5), b({3}, 2.25), y({3});
  add(run, a, b, y);
  EXPECT_EQ(y, OwnedTensor<double>({3}, 3.75));
}

TEST(Copy, MovesEveryDtype) {
  TestRun run;
  auto tokens = test::random_tokens({3, 100001}, 50257, 1);
  OwnedTensor<std::int32_t> copied(tokens.shape);
  copy(run, tokens, copied);
  EXPECT_EQ(copied, tokens);
  auto x = random_tensor<double>({17}, 1);
  OwnedTensor<double> y({17});
  copy(run, x, y);
  EXPECT_EQ(y, x);
  EXPECT_THROW(copy(run, x, copied), Error);
}

TEST(FillZero, LeavesNothingAndTouchesNothingElse) {
  TestRun run;
  OwnedTensor<float> x({200003}, 7.0F);
  fill_zero(run, x.view().rows(1, 200002));
  EXPECT_EQ(x[0], 7.0F);
  EXPECT_EQ(x[200002], 7.0F);
  EXPECT_EQ(std::count(x.values.begin(), x.values.end(), 0.0F), 200001);
}

TEST(Dropout, GivesTheBitsOfRef) {
  TestRun run;
  run.run.seed = 0x123456789ABCDEF;
  run.run.step = 77;
  run.run.first_sample = 5;
  for (const std::int64_t C : {1, 3, 17, 65, 255, 1030}) {
    auto x = random_tensor<float>({3, 17, C}, 1);
    OwnedTensor<float> y(x.shape), expected(x.shape);
    for (const double p : {0.0, 0.1, 0.5, 0.9}) {
      dropout(run, p, 4, x, y);
      ref::dropout<float>(run, p, 4, x, expected);
      EXPECT_EQ(y, expected) << C << " " << p;
    }
  }
}

TEST(Dropout, KeepsTheExpectedShareAndMean) {
  TestRun run;
  OwnedTensor<float> x({1, 1000, 1000}, 1.0F);
  const double p = 0.1;
  dropout(run, p, 0, x, x);
  const double n = static_cast<double>(x.size());
  const double dropped = static_cast<double>(std::count(x.values.begin(), x.values.end(), 0.0F));
  // Five standard deviations of a binomial count; the draw is fixed, so this cannot be flaky.
  EXPECT_NEAR(dropped, n * p, 5 * std::sqrt(n * p * (1 - p)));
  EXPECT_EQ(*std::max_element(x.values.begin(), x.values.end()), static_cast<float>(1 / 0.9));
}

TEST(Dropout, MaskIsThatOfTheGlobalSample) {
  TestRun run;
  OwnedTensor<float> x({4, 8, 33}, 1.0F), whole(x.shape), later(x.shape);
  run.run.first_sample = 10;
  dropout(run, 0.5, 2, x, whole);
  run.run.first_sample = 12;  // the same samples 12 and 13, now rows 0 and 1
  dropout(run, 0.5, 2, x, later);
  const std::int64_t row = 8 * 33;
  for (std::int64_t i = 0; i < 2 * row; ++i) ASSERT_EQ(later[i], whole[2 * row + i]);
}

TEST(Dropout, PartsOfTheRowsDrawWhatTheWholeDraws) {
  TestRun run;
  run.run.first_sample = 3;
  for (const std::int64_t C : {4, 7, 260}) {
    auto x = random_tensor<float>({3, 20, C}, 1);
    OwnedTensor<float> whole(x.shape);
    dropout(run, 0.4, 2, x, whole);
    for (const std::int64_t count : {2, 4, 5}) {
      OwnedTensor<float> parts(x.shape);
      const std::int64_t rows = 60 / count;
      for (std::int64_t index = 0; index < count; ++index) {
        const Shape shape = {3, 20 / count, C};
        const auto of = [&](OwnedTensor<float>& all) {
          return all.view()
              .reshaped({60, C})
              .rows(index * rows, (index + 1) * rows)
              .reshaped(shape);
        };
        dropout(run, 0.4, 2, of(x), of(parts), {count, index});
      }
      EXPECT_EQ(parts, whole) << C << " in " << count;
    }
  }
}

TEST(Dropout, RanksThatShareSamplesDrawWhatTheWholeDraws) {
  TestRun run;
  run.run.first_sample = 3;
  constexpr std::int64_t kB = 2, kTokens = 24, kC = 2100;  // a stretch is several tasks
  auto x = random_tensor<float>({kB, kTokens, kC}, 1);
  OwnedTensor<float> whole(x.shape);
  dropout(run, 0.4, 2, x, whole);
  for (const SequenceOrder order : {SequenceOrder::kContiguous, SequenceOrder::kZigzag}) {
    for (int rank = 0; rank < 3; ++rank) {
      const SequencePart part = {order, 3, rank};
      OwnedTensor<float> mine({kB, kTokens / 3, kC}), drawn = mine, expected = mine, slow = mine;
      for (std::int64_t row = 0; row < kB * kTokens / 3; ++row) {
        const std::int64_t token =
            row / (kTokens / 3) * kTokens + part.token(row % (kTokens / 3), kTokens / 3);
        std::copy_n(&x[token * kC], kC, &mine[row * kC]);
        std::copy_n(&whole[token * kC], kC, &expected[row * kC]);
      }
      for (const std::int64_t count : {1, 2, 4}) {  // that share these rows
        const auto of = [&](OwnedTensor<float>& all, std::int64_t index) {
          const std::int64_t rows = kB * kTokens / 3 / count;
          return all.view()
              .reshaped({kB * kTokens / 3, kC})
              .rows(index * rows, (index + 1) * rows)
              .reshaped({kB, rows / kB, kC});
        };
        for (std::int64_t index = 0; index < count; ++index) {
          dropout(run, 0.4, 2, of(mine, index), of(drawn, index), {count, index, part});
          ref::dropout<float>(run, 0.4, 2, of(mine, index), of(slow, index), {count, index, part});
        }
        EXPECT_EQ(drawn, expected) << rank << " in " << count;
        EXPECT_EQ(slow, expected) << rank << " in " << count;
      }
    }
  }
}

TEST(AddBias, AddsToEachRow) {
  TestRun run;
  auto x = random_tensor<float>({2, 37, 5}, 1);
  auto bias = random_tensor<float>({5}, 2);
  OwnedTensor<float> y(x.shape);
  add_bias(run, x, bias, y);
  for (std::int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], x[i] + bias[i % 5]) << i;
}

TEST(Dropout, LayerStepSampleAndSeedEachChangeTheMask) {
  TestRun run;
  OwnedTensor<float> x({1, 8, 33}, 1.0F), base(x.shape);
  dropout(run, 0.5, 1, x, base);
  const auto differs = [&](std::uint64_t seed, std::int64_t layer, std::int64_t step,
                           std::int64_t sample) {
    run.run.seed = seed;
    run.run.step = step;
    run.run.first_sample = sample;
    OwnedTensor<float> y(x.shape);
    dropout(run, 0.5, layer, x, y);
    return !(y == base);
  };
  EXPECT_FALSE(differs(0, 1, 0, 0));
  EXPECT_TRUE(differs(1, 1, 0, 0));
  EXPECT_TRUE(differs(0, 2, 0, 0));
  EXPECT_TRUE(differs(0, 1, 1, 0));
  EXPECT_TRUE(differs(0, 1, 0, 1));
}

TEST(Dropout, RefusesAProbabilityOutsideItsRange) {
  TestRun run;
  OwnedTensor<float> x({1, 2, 3});
  EXPECT_THROW(dropout(run, 1.0, 0, x, x), Error);
  EXPECT_THROW(dropout(run, -0.1, 0, x, x), Error);
}

TEST(SumOfSquares, MatchesRef) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    auto x = random_tensor<float>({n}, 1);
    const double expected = ref::sum_of_squares<float>(x);
    // Squares of f32 are exact in double; n additions of positive terms round n times at worst.
    EXPECT_NEAR(sum_of_squares(run, x), expected, static_cast<double>(n) * 0x1p-53 * expected) << n;
    auto in_double = x.as<double>();
    EXPECT_EQ(sum_of_squares(run, in_double), expected);
  }
}

TEST(SumOfSquares, OfManyBlocksIsBoundedAndRight) {
  TestRun run;
  // More elements than 1,024 blocks of the smallest size hold.
  OwnedTensor<float> x({1024 * 16384 + 12345}, 2.0F);
  EXPECT_EQ(sum_of_squares(run, x), 4.0 * static_cast<double>(x.size()));
}

TEST(SumOfSquares, ShowsInfinityAndNan) {
  TestRun run;
  auto x = random_tensor<float>({255}, 1);
  x[200] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(run, x)));
  x[254] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(run, x)));
}

TEST(Elementwise, ThreadCountChangesNoBit) {
  auto x = random_tensor<float>({3, 100, 515}, 1);
  double sum_with_one = 0;
  OwnedTensor<float> dropped_with_one;
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    OwnedTensor<float> y(x.shape);
    dropout(run, 0.3, 1, x, y);
    const double sum = sum_of_squares(run, x);
    if (threads == 1) {
      sum_with_one = sum;
      dropped_with_one = y;
    }
    EXPECT_EQ(sum, sum_with_one);
    EXPECT_EQ(y, dropped_with_one);
  }
}

}  // namespace
}  // namespace atl::ops
