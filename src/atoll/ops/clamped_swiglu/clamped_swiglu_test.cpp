#include "atoll/ops/clamped_swiglu/clamped_swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr double kLimit = 0.6;  // random_tensor's numbers are up to 1: some lie beyond

TEST(ClampedSwiglu, IsTheDefinition) {
  TestRun run;
  OwnedTensor<double> x({1, 8}), h({1, 4});
  x.values = {1, 9, -9, 2, 1, -9, 9, 0};  // gates, then ups; the limit is 7
  clamped_swiglu_forward(run, 7, x, h);
  const auto glu = [](double g) { return g / (1 + std::exp(-1.702 * g)); };
  EXPECT_NEAR(h[0], glu(1) * 2, 1e-12);
  EXPECT_NEAR(h[1], glu(7) * -6, 1e-12) << "both at their bounds";
  EXPECT_NEAR(h[2], glu(-9) * 8, 1e-12) << "a gate has no lower bound";
  EXPECT_NEAR(h[3], glu(2), 1e-12);
}

TEST(ClampedSwiglu, GradientIsThatOfFiniteDifferences) {
  TestRun run;
  auto x = random_tensor<double>({5, 22}, 3), dh = random_tensor<double>({5, 11}, 4);
  OwnedTensor<double> h({5, 11}), again({5, 11}), dx({5, 22});
  clamped_swiglu_forward(run, kLimit, x, h);
  clamped_swiglu_backward(run, kLimit, x, dh, dx, again);
  EXPECT_EQ(again, h);
  const OwnedTensor<double> slope = test::finite_difference(x, [&] {
    clamped_swiglu_forward(run, kLimit, x, h);
    return test::dot(h, dh);
  });
  EXPECT_LE(test::max_abs_difference(dx, slope), 1e-8);
  EXPECT_GT(std::ranges::count(dx.values, 0.0), 0) << "none lay beyond the limit";
  clamped_swiglu_backward(run, kLimit, x, dh, x, again);
  EXPECT_EQ(x, dx) << "in place";
}

TEST(ClampedSwiglu, F32IsNearDoubleAndHugeNumbersAreFinite) {
  TestRun run;
  auto x = random_tensor<float>({7, 66}, 5);
  OwnedTensor<double> wide({7, 66}), exact({7, 33});
  std::copy(x.values.begin(), x.values.end(), wide.values.begin());
  OwnedTensor<float> h({7, 33});
  clamped_swiglu_forward(run, kLimit, x, h);
  clamped_swiglu_forward(run, kLimit, wide, exact);
  EXPECT_LE(test::max_abs_difference(h, exact), 8 * 0x1p-23);
  OwnedTensor<float> huge({1, 4}), to({1, 2}), dh({1, 2}, 1.0F), dhuge({1, 4});
  huge.values = {1e30F, -1e30F, -1e30F, 1e30F};
  clamped_swiglu_forward(run, 7, huge, to);
  clamped_swiglu_backward(run, 7, huge, dh, dhuge, to);
  for (const float value : to.values) EXPECT_TRUE(std::isfinite(value));
  for (const float value : dhuge.values) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace atl::ops
