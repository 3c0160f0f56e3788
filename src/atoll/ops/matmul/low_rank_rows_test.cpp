#include "atoll/ops/matmul/low_rank_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

// What is added to: nine rows.
struct Rows {
  Rows(std::int64_t in, std::int64_t out)
      : x(test::random_tensor<float>({9, in}, 1)), y(test::random_tensor<float>({9, out}, 2)) {}
  test::OwnedTensor<float> x, y;
};

struct Factors {
  Factors(std::int64_t of_rank, std::int64_t in, std::int64_t out, std::uint64_t seed)
      : rank(of_rank),
        a(test::random_tensor<float>({rank, in}, seed)),
        b(test::random_tensor<float>({out, rank}, seed + 1)) {}
  LowRankRows for_rows(std::int64_t begin, std::int64_t count) {
    return {begin, count, a.view(), b.view()};
  }
  std::int64_t rank;
  test::OwnedTensor<float> a, b;
};

// An element of y afterwards, in double.
double expected(const Rows& rows, const Factors& f, std::int64_t row, std::int64_t column) {
  const std::int64_t in = rows.x.shape.dim(1), out = rows.y.shape.dim(1);
  double sum = static_cast<double>(rows.y[row * out + column]);
  for (std::int64_t r = 0; r < f.rank; ++r) {
    double low = 0;
    for (std::int64_t i = 0; i < in; ++i) {
      low += static_cast<double>(rows.x[row * in + i]) * static_cast<double>(f.a[r * in + i]);
    }
    sum += low * static_cast<double>(f.b[column * f.rank + r]);
  }
  return sum;
}

TEST(LowRankRows, EachPartHasItsOwnFactorsAndOtherRowsStay) {
  constexpr std::int64_t kIn = 37, kOut = 1100;  // more columns than a task has
  const Rows before(kIn, kOut);
  Rows after(kIn, kOut);
  Factors first(5, kIn, kOut, 3), second(16, kIn, kOut, 5);
  test::TestRun run;
  const std::vector<LowRankRows> parts = {first.for_rows(1, 3), second.for_rows(6, 2)};
  add_low_rank_rows(run, parts, after.x, after.y);
  // Sums of 37 and then 16 terms of a size of about 1.
  constexpr double kTolerance = 37 * 16 * 4 * std::numeric_limits<float>::epsilon();
  for (std::int64_t row = 0; row < 9; ++row) {
    const bool is_first = row >= 1 && row < 4, is_second = row == 6 || row == 7;
    for (std::int64_t c = 0; c < kOut; ++c) {
      const auto found = static_cast<double>(after.y[row * kOut + c]);
      if (is_first || is_second) {
        EXPECT_NEAR(found, expected(before, is_first ? first : second, row, c), kTolerance);
      } else {
        EXPECT_EQ(after.y[row * kOut + c], before.y[row * kOut + c]);
      }
    }
  }
}

TEST(LowRankRows, ARowHasTheSameBitsAlone) {
  constexpr std::int64_t kIn = 64, kOut = 96;
  Rows together(kIn, kOut), alone(kIn, kOut);
  Factors factors(8, kIn, kOut, 3);
  test::TestRun run;
  const auto add = [&](Rows& rows, std::int64_t begin, std::int64_t count) {
    const std::vector<LowRankRows> parts = {factors.for_rows(begin, count)};
    add_low_rank_rows(run, parts, rows.x, rows.y);
  };
  add(together, 0, 9);
  for (std::int64_t row = 0; row < 9; ++row) add(alone, row, 1);
  EXPECT_EQ(together.y.values, alone.y.values);
}

}  // namespace
}  // namespace atl::ops
