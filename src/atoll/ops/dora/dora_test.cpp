#include "atoll/ops/dora/dora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr DiagonalBlock kBlocks[] = {{4, 2}, {0, 3}};

TEST(Dora, GainGivesRowsTheirLengthsAndLeavesOthers) {
  TestRun run(2);
  auto w = random_tensor<double>({7, 3}, 1);
  auto change = random_tensor<double>({7, 3}, 2);
  auto magnitude = random_tensor<double>({5}, 3);
  OwnedTensor<double> gain({2, 7});
  dora_gain(run.run, w.view(), change.view(), magnitude.view(), kBlocks, true, gain.view());
  const int order[] = {4, 5, 0, 1, 2};
  for (int k = 0; k < 5; ++k) {
    const int j = order[k];
    double length = 0;
    for (int i = 0; i < 3; ++i) {
      const double element = gain.values[j] * (w.values[j * 3 + i] + change.values[j * 3 + i]);
      length += element * element;
    }
    EXPECT_NEAR(std::sqrt(length), std::abs(magnitude.values[k]), 1e-14) << j;
    EXPECT_NEAR(gain.values[7 + j] * magnitude.values[k], gain.values[j], 1e-14) << j;
  }
  for (const int j : {3, 6}) {
    EXPECT_EQ(gain.values[j], 1) << j;
    EXPECT_EQ(gain.values[7 + j], 0) << j;
  }
  // A second adapter of the same weight.
  const DiagonalBlock more[] = {{6, 1}};
  OwnedTensor<double> zero({1});
  const std::vector<double> before = gain.values;
  dora_gain(run.run, w.view(), change.view(), zero.view(), more, false, gain.view());
  EXPECT_EQ(gain.values[6], 0);
  for (const int j : {0, 1, 2, 3, 4, 5}) EXPECT_EQ(gain.values[j], before[j]) << j;
}

// The gradient of sum(dy * scale(u)) by the magnitudes: gain is magnitude times a constant.
TEST(Dora, BackwardIsTheGradientAndAdds) {
  TestRun run(2);
  auto u = random_tensor<double>({2, 3, 7}, 1);
  auto dy = random_tensor<double>({2, 3, 7}, 2);
  auto gain = random_tensor<double>({2, 7}, 3);
  OwnedTensor<double> dmagnitude({5});
  for (double& value : dmagnitude.values) value = 1;
  dora_backward(run.run, dy.view(), u.view(), gain.view(), kBlocks, dmagnitude.view());
  const int order[] = {4, 5, 0, 1, 2};
  for (int k = 0; k < 5; ++k) {
    double sum = 1;
    for (int r = 0; r < 6; ++r) {
      const int at = r * 7 + order[k];
      sum += dy.values[at] * u.values[at] * gain.values[7 + order[k]];
    }
    EXPECT_NEAR(dmagnitude.values[k], sum, 1e-14) << k;
  }
}

TEST(Dora, ScaleMultipliesColumnsInPlaceToo) {
  TestRun run(2);
  auto x = random_tensor<float>({2, 3, 7}, 1);
  auto gain = random_tensor<float>({2, 7}, 2);
  OwnedTensor<float> y({2, 3, 7});
  dora_scale(run.run, x.view(), gain.view(), y.view());
  for (int at = 0; at < 42; ++at) EXPECT_EQ(y.values[at], x.values[at] * gain.values[at % 7]) << at;
  dora_scale(run.run, x.view(), gain.view(), x.view());
  EXPECT_EQ(x.values, y.values);
}

// Sums are in double and rounded once: bf16 operands give what the same numbers in f32 give.
TEST(Dora, Bf16IsTheRoundedF32) {
  TestRun run;
  auto w = random_tensor<Bf16>({7, 3}, 1);
  auto change = random_tensor<Bf16>({7, 3}, 2);
  auto magnitude = random_tensor<Bf16>({5}, 3);
  const auto widened = [](const OwnedTensor<Bf16>& from, Shape shape) {
    OwnedTensor<float> to(shape);
    for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] = to_f32(from.values[i]);
    return to;
  };
  auto w32 = widened(w, {7, 3});
  auto change32 = widened(change, {7, 3});
  auto magnitude32 = widened(magnitude, {5});
  OwnedTensor<float> gain({2, 7});
  OwnedTensor<float> gain32({2, 7});
  dora_gain(run.run, w.view(), change.view(), magnitude.view(), kBlocks, true, gain.view());
  dora_gain(run.run, w32.view(), change32.view(), magnitude32.view(), kBlocks, true, gain32.view());
  EXPECT_EQ(gain.values, gain32.values);
}

TEST(Dora, RefusesABlockBeyondTheMatrix) {
  TestRun run;
  OwnedTensor<float> w({7, 3});
  OwnedTensor<float> magnitude({5});
  OwnedTensor<float> gain({2, 7});
  const DiagonalBlock beyond[] = {{5, 3}, {0, 2}};
  EXPECT_THROW(dora_gain(run.run, w.view(), w.view(), magnitude.view(), beyond, true, gain.view()),
               Error);
}

}  // namespace
}  // namespace atl::ops
