#include "atoll/ops/group_bias/group_bias.h"

#include <gtest/gtest.h>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kRows = 37, kWidth = 5;

// Three groups, of which one is empty, and two rows behind them.
OwnedTensor<std::int32_t> offsets() {
  OwnedTensor<std::int32_t> begins({4});
  begins.values = {0, 20, 20, 35};
  return begins;
}
std::int64_t group_of(std::int64_t row) {
  return row < 20 ? 0 : row < 35 ? 2 : -1;
}

TEST(GroupBias, EachRowGetsThatOfItsGroup) {
  TestRun run;
  auto begins = offsets();
  auto bias = random_tensor<double>({3 * kWidth}, 1);
  auto rows = random_tensor<double>({kRows, kWidth}, 2);
  const auto before = rows;
  OwnedTensor<double> filled({kRows, kWidth}, 9.0);
  add_group_bias(run, bias, begins, rows);
  fill_group_bias(run, bias, begins, filled);
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const std::int64_t group = group_of(i / kWidth);
    const double shift = group < 0 ? 0 : bias[group * kWidth + i % kWidth];
    EXPECT_EQ(rows[i], before[i] + shift) << i;
    EXPECT_EQ(filled[i], shift) << i;
  }
}

TEST(GroupBias, SumsAddUpTheRowsOfEachGroup) {
  TestRun run;
  auto begins = offsets();
  auto rows = random_tensor<double>({kRows, kWidth}, 2);
  OwnedTensor<double> sums({3 * kWidth}, 1.0), expected({3 * kWidth}, 0.0);
  for (std::int64_t i = 0; i < 35 * kWidth; ++i) {
    expected[group_of(i / kWidth) * kWidth + i % kWidth] += rows[i];
  }
  add_group_sums(run, rows, begins, sums);
  for (std::int64_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 1.0 + expected[i]) << i;
}

TEST(GroupBias, ThreadCountChangesNoBit) {
  auto begins = offsets();
  auto bias = random_tensor<float>({3 * kWidth}, 1);
  auto start = random_tensor<float>({kRows, kWidth}, 2);
  OwnedTensor<float> first, first_sums;
  for (const int threads : {1, 3}) {
    TestRun run(threads);
    auto rows = start;
    OwnedTensor<float> sums({3 * kWidth}, 0.5F);
    add_group_bias(run, bias, begins, rows);
    add_group_sums(run, rows, begins, sums);
    if (threads == 1) {
      first = rows;
      first_sums = sums;
    }
    EXPECT_EQ(rows, first);
    EXPECT_EQ(sums, first_sums);
  }
}

}  // namespace
}  // namespace atl::ops
