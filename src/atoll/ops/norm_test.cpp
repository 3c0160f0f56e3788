#include "atoll/ops/norm.h"

#include <gtest/gtest.h>

#include "atoll/ops/ref/norm.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr double kEps = 1e-5;

// All operands of both norms, of R rows and C columns.
template <typename T>
struct Norm {
  Norm(std::int64_t R, std::int64_t C)
      : x(random_tensor<T>({R, C}, 1)),
        weight(random_tensor<T>({C}, 2)),
        bias(random_tensor<T>({C}, 3)),
        dy(random_tensor<T>({R, C}, 4)),
        y({R, C}),
        dx({R, C}),
        mean({R}),
        rstd({R}),
        dweight(random_tensor<T>({C}, 5)),
        dbias(random_tensor<T>({C}, 6)) {}

  void run_layer(Run& run) {
    layer_norm_forward(run, kEps, x, weight, bias, y, mean, rstd);
    layer_norm_backward_input(run, x, weight, mean, rstd, dy, dx);
    layer_norm_backward_weight(run, x, mean, rstd, dy, dweight, dbias);
  }
  void run_rms(Run& run) {
    rms_norm_forward(run, kEps, x, weight, y, rstd);
    rms_norm_backward_input(run, x, weight, rstd, dy, dx);
    rms_norm_backward_weight(run, x, rstd, dy, dweight);
  }
  void ref_layer() {
    ref::layer_norm_forward<T>(kEps, x, weight, bias, y, mean, rstd);
    ref::layer_norm_backward_input<T>(x, weight, mean, rstd, dy, dx);
    ref::layer_norm_backward_weight<T>(x, mean, rstd, dy, dweight, dbias);
  }
  void ref_rms() {
    ref::rms_norm_forward<T>(kEps, x, weight, y, rstd);
    ref::rms_norm_backward_input<T>(x, weight, rstd, dy, dx);
    ref::rms_norm_backward_weight<T>(x, rstd, dy, dweight);
  }

  OwnedTensor<T> x, weight, bias, dy, y, dx, mean, rstd, dweight, dbias;
};

// Rounding of a sum of n products of magnitude at most 1 in f32, in any order, is at most
// n eps; with random signs it is near sqrt(n) eps. The rest of an element is ten operations.
double tolerance(std::int64_t n) {
  return 0x1p-23 * (10 + 2 * std::sqrt(static_cast<double>(n)));
}

template <typename T>
double error(const OwnedTensor<float>& fast, const OwnedTensor<T>& exact) {
  return test::max_abs_difference(fast, exact) / std::max(1.0, test::max_abs(exact));
}

void expect_near(const Norm<float>& fast, const Norm<double>& exact) {
  const std::int64_t R = fast.x.shape.dim(0);
  const std::int64_t C = fast.x.shape.dim(1);
  // A row of nearly equal elements has a large rstd, which amplifies what rounding x - mean left.
  const double amplified = std::max(1.0, test::max_abs(exact.rstd));
  EXPECT_LE(error(fast.y, exact.y), amplified * tolerance(C)) << R << " x " << C;
  EXPECT_LE(error(fast.mean, exact.mean), tolerance(C)) << R << " x " << C;
  EXPECT_LE(error(fast.rstd, exact.rstd), amplified * tolerance(C)) << R << " x " << C;
  EXPECT_LE(error(fast.dx, exact.dx), amplified * tolerance(C)) << R << " x " << C;
  EXPECT_LE(error(fast.dweight, exact.dweight), amplified * tolerance(R)) << R << " x " << C;
  EXPECT_LE(error(fast.dbias, exact.dbias), tolerance(R)) << R << " x " << C;
}

const std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {1, 1}, {3, 3}, {2, 17}, {65, 31}, {17, 65}, {33, 255}, {130, 64}, {1100, 33}, {5, 1027}};

class NormTargets : public test::EachTarget {};

TEST_P(NormTargets, RmsNormMatchesRefInDouble) {
  TestRun run;
  for (const auto& [R, C] : kShapes) {
    Norm<float> fast(R, C);
    Norm<double> exact(R, C);
    fast.run_rms(run);
    exact.ref_rms();
    expect_near(fast, exact);
  }
}

TEST_P(NormTargets, LayerNormMatchesRefInDouble) {
  TestRun run;
  for (const auto& [R, C] : kShapes) {
    Norm<float> fast(R, C);
    Norm<double> exact(R, C);
    fast.run_layer(run);
    exact.ref_layer();
    expect_near(fast, exact);
  }
}

TEST_P(NormTargets, LayerNormKeepsItsDigitsUnderALargeMean) {
  TestRun run;
  Norm<float> fast(4, 255);
  for (float& value : fast.x.values) value += 1000.0F;
  Norm<double> exact(4, 255);
  exact.x = fast.x.as<double>();
  fast.run_layer(run);
  exact.ref_layer();
  // The mean is rounded to half an ulp of 1000, 2^-15, plus its sum; that over the row's standard
  // deviation of about 0.58 is the error of y. One pass over x^2 would be off by 10% here.
  EXPECT_LE(test::max_abs_difference(fast.y, exact.y), 16 * 0x1p-14);
}

INSTANTIATE_TEST_SUITE_P(All, NormTargets, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         test::target_name);

// loss = sum(dy * y), so that its gradients are those of the op.
template <typename Forward>
void expect_gradients(Norm<double>& norm, const OwnedTensor<double>& dweight, bool with_bias,
                      Forward&& forward) {
  const auto loss = [&] {
    forward();
    return test::dot(norm.dy, norm.y);
  };
  // 30 terms of order 1 and a third derivative below 1e3: about 1e-7 each way at h = 1e-5.
  const double tolerance = 1e-7;
  EXPECT_LE(test::max_relative_error(norm.dx, test::finite_difference(norm.x, loss)), tolerance);
  EXPECT_LE(test::max_relative_error(dweight, test::finite_difference(norm.weight, loss)),
            tolerance);
  if (!with_bias) return;
  EXPECT_LE(test::max_relative_error(norm.dbias, test::finite_difference(norm.bias, loss)),
            tolerance);
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  TestRun run;
  Norm<double> norm(6, 5);
  std::fill(norm.dweight.values.begin(), norm.dweight.values.end(), 0.0);
  norm.run_rms(run);
  expect_gradients(norm, norm.dweight, false,
                   [&] { rms_norm_forward(run, kEps, norm.x, norm.weight, norm.y, norm.rstd); });
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  TestRun run;
  Norm<double> norm(6, 5);
  std::fill(norm.dweight.values.begin(), norm.dweight.values.end(), 0.0);
  std::fill(norm.dbias.values.begin(), norm.dbias.values.end(), 0.0);
  norm.run_layer(run);
  expect_gradients(norm, norm.dweight, true, [&] {
    layer_norm_forward(run, kEps, norm.x, norm.weight, norm.bias, norm.y, norm.mean, norm.rstd);
  });
}

TEST(Norm, ThreadCountChangesNoBit) {
  TestRun one(1);
  Norm<float> layer(333, 515);
  Norm<float> rms(333, 515);
  layer.run_layer(one);
  rms.run_rms(one);
  for (const int threads : {2, 3}) {
    TestRun run(threads);
    Norm<float> again(333, 515);
    again.run_layer(run);
    EXPECT_TRUE(again.y == layer.y && again.dx == layer.dx && again.dweight == layer.dweight &&
                again.dbias == layer.dbias);
    Norm<float> rms_again(333, 515);
    rms_again.run_rms(run);
    EXPECT_TRUE(rms_again.y == rms.y && rms_again.dx == rms.dx && rms_again.dweight == rms.dweight);
  }
}

TEST(Norm, BackwardInputMayWriteOverItsGradient) {
  TestRun run;
  Norm<float> apart(7, 65);
  apart.run_layer(run);
  OwnedTensor<float> in_place = apart.dy;
  layer_norm_backward_input(run, apart.x, apart.weight, apart.mean, apart.rstd, in_place, in_place);
  EXPECT_EQ(in_place, apart.dx);
  apart.run_rms(run);
  in_place = apart.dy;
  rms_norm_backward_input(run, apart.x, apart.weight, apart.rstd, in_place, in_place);
  EXPECT_EQ(in_place, apart.dx);
}

TEST(Norm, ScratchOfThePlannedSizeIsEnough) {
  for (const auto& [R, C] : kShapes) {
    Norm<float> norm(R, C);
    TestRun run(2, norm_scratch_bytes(norm.x.view().spec()));
    EXPECT_NO_THROW(norm.run_layer(run));
  }
}

TEST(Norm, RefusesOperandsThatDoNotFit) {
  TestRun run;
  Norm<float> norm(4, 8);
  OwnedTensor<float> short_weight({7});
  EXPECT_THROW(rms_norm_forward(run, kEps, norm.x, short_weight, norm.y, norm.rstd), Error);
  OwnedTensor<double> other_dtype({8});
  EXPECT_THROW(rms_norm_forward(run, kEps, norm.x, other_dtype, norm.y, norm.rstd), Error);
}

}  // namespace
}  // namespace atl::ops
