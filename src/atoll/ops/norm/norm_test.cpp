#include "atoll/ops/norm/norm.h"

#include <gtest/gtest.h>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/norm/ref.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr double kEps = 1e-5;
const RmsScale kScale = {kEps, 0.5};

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
        past(random_tensor<T>({R, C}, 7)),
        mean({R}),
        rstd({R}),
        dweight(random_tensor<T>({C}, 5)),
        dbias(random_tensor<T>({C}, 6)) {}

  void run_layer(Run& run) {
    layer_norm_forward(run, kEps, x, weight, bias, y, mean, rstd);
    OwnedTensor<T> sums(norm_sums_spec(x.view().spec(), 2).shape, T(1e30));
    layer_norm_backward(run, x, weight, mean, rstd, dy, residual(), dx, sums);
    add_norm_sums(run, x.shape.dim(0), sums, dweight, dbias);
  }
  void run_rms(Run& run) {
    rms_norm_forward(run, kScale, x, weight, y, rstd);
    OwnedTensor<T> sums(norm_sums_spec(x.view().spec(), 1).shape, T(1e30));
    rms_norm_backward(run, kScale, x, weight, rstd, dy, residual(), dx, sums);
    add_norm_sums(run, x.shape.dim(0), sums, dweight);
  }
  void ref_layer() {
    ref::layer_norm_forward<T>(kEps, x, weight, bias, y, mean, rstd);
    ref::layer_norm_backward_input<T>(x, weight, mean, rstd, dy, dx, residual());
    ref::layer_norm_backward_weight<T>(x, mean, rstd, dy, dweight, dbias);
  }
  void ref_rms() {
    ref::rms_norm_forward<T>(kScale, x, weight, y, rstd);
    ref::rms_norm_backward_input<T>(kScale, x, weight, rstd, dy, dx, residual());
    ref::rms_norm_backward_weight<T>(x, rstd, dy, dweight);
  }

  /// The gradient that goes past the norm, where there is one.
  Tensor residual() { return has_residual ? past.view() : Tensor(); }

  OwnedTensor<T> x, weight, bias, dy, y, dx, past, mean, rstd, dweight, dbias;
  bool has_residual = false;
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
    fast.has_residual = exact.has_residual = R % 2 == 1;
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
    fast.has_residual = exact.has_residual = R % 2 == 1;
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

TEST(RmsNorm, WithoutAnOffsetAWeightOfMinusZeroStays) {
  TestRun run;
  OwnedTensor<float> x({1, 17}, 1.0F), weight({17}, -0.0F), y({1, 17}), rstd({1});
  rms_norm_forward(run, kEps, x, weight, y, rstd);
  for (std::int64_t i = 0; i < 17; ++i) EXPECT_TRUE(std::signbit(y[i])) << i;
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
                   [&] { rms_norm_forward(run, kScale, norm.x, norm.weight, norm.y, norm.rstd); });
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

TEST(Norm, BackwardMayWriteOverItsGradient) {
  TestRun run;
  Norm<float> apart(7, 65);
  apart.run_layer(run);
  OwnedTensor<float> in_place = apart.dy;
  layer_norm_backward(run, apart.x, apart.weight, apart.mean, apart.rstd, in_place, {}, in_place,
                      {});
  EXPECT_EQ(in_place, apart.dx);
  apart.run_rms(run);
  in_place = apart.dy;
  rms_norm_backward(run, kScale, apart.x, apart.weight, apart.rstd, in_place, {}, in_place, {});
  EXPECT_EQ(in_place, apart.dx);
}

// On a CPU: as an op that adds two tensors has them.
TEST(Norm, TheGradientPastItIsAddedWithTheBitsOfTwoOps) {
  TestRun run;
  for (const std::int64_t C : {1, 33, 255}) {
    const auto x = random_tensor<Bf16>({37, C}, 1), dy = random_tensor<Bf16>({37, C}, 2);
    auto weight = random_tensor<Bf16>({C}, 3), past = random_tensor<Bf16>({37, C}, 4);
    OwnedTensor<Bf16> rows = x, grads = dy, together({37, C}), apart({37, C}), y({37, C});
    OwnedTensor<float> mean({37}), rstd({37}), sums(norm_sums_spec(rows.view().spec(), 2).shape);
    layer_norm_forward(run, kEps, rows, weight, weight, y, mean, rstd);
    layer_norm_backward(run, rows, weight, mean, rstd, grads, past, together, sums);
    layer_norm_backward(run, rows, weight, mean, rstd, grads, {}, apart, {});
    EXPECT_FALSE(together == apart);
    add(run, past, apart, apart);
    EXPECT_EQ(together, apart);
  }
}

TEST(Norm, RefusesOperandsThatDoNotFit) {
  TestRun run;
  Norm<float> norm(4, 8);
  OwnedTensor<float> short_weight({7});
  EXPECT_THROW(rms_norm_forward(run, kEps, norm.x, short_weight, norm.y, norm.rstd), Error);
  EXPECT_THROW(rms_norm_backward(run, kScale, norm.x, norm.weight, norm.rstd, norm.dy, short_weight,
                                 norm.dx, {}),
               Error);
  OwnedTensor<float> sums({1, 1, 7});
  EXPECT_THROW(add_norm_sums(run, 4, sums, norm.dweight), Error);
  OwnedTensor<double> other_dtype({8});
  EXPECT_THROW(rms_norm_forward(run, kEps, norm.x, other_dtype, norm.y, norm.rstd), Error);
}

}  // namespace
}  // namespace atl::ops
