#include "atoll/ops/activation/activation.h"

#include <gtest/gtest.h>

#include "atoll/ops/activation/ref.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr double kUlp = 0x1p-23;
constexpr std::int64_t kWidths[] = {1, 3, 17, 65, 255};
constexpr Gelu kKinds[] = {Gelu::kErf, Gelu::kTanh};

// Evenly spaced in [-bound, bound].
OwnedTensor<float> grid(std::int64_t n, double bound) {
  OwnedTensor<float> x({n});
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(bound * (2.0 * i / (n - 1) - 1));
  return x;
}

class ActivationTargets : public test::EachTarget {};

TEST_P(ActivationTargets, SwigluMatchesRefInDouble) {
  TestRun run;
  for (const std::int64_t F : kWidths) {
    auto gate_up = random_tensor<float>({5, 2 * F}, 1, 20.0F);
    auto dh = random_tensor<float>({5, F}, 2);
    OwnedTensor<float> h({5, F}), h_again({5, F}), dgate_up({5, 2 * F});
    swiglu_forward(run, gate_up, h);
    swiglu_backward(run, gate_up, dh, dgate_up, h_again);
    auto exact_in = gate_up.as<double>();
    auto exact_dh = dh.as<double>();
    OwnedTensor<double> exact_h({5, F}), exact_dgate_up({5, 2 * F});
    ref::swiglu_backward<double>(exact_in, exact_dh, exact_dgate_up, exact_h);
    // The exponential is good to 2 ulp and its argument v to half of one, which changes e^-v by v
    // e^-v eps < eps; about six roundings follow. Products of gate and up reach 400, gradients 20
    // (dup = dh silu, dgate = dh up times 1.1 at most).
    EXPECT_LE(test::max_abs_difference(h, exact_h), 400 * 8 * kUlp) << F;
    EXPECT_LE(test::max_abs_difference(dgate_up, exact_dgate_up), 22 * 8 * kUlp) << F;
    EXPECT_EQ(h, h_again);
  }
}

TEST(Swiglu, GradientMatchesFiniteDifferences) {
  TestRun run;
  auto gate_up = random_tensor<double>({3, 10}, 1, 3.0F);
  auto dh = random_tensor<double>({3, 5}, 2);
  OwnedTensor<double> h({3, 5}), dgate_up({3, 10});
  swiglu_backward(run, gate_up, dh, dgate_up, h);
  const auto loss = [&] {
    swiglu_forward(run, gate_up, h);
    return test::dot(dh, h);
  };
  EXPECT_LE(test::max_relative_error(dgate_up, test::finite_difference(gate_up, loss)), 1e-8);
}

TEST_P(ActivationTargets, GegluMatchesRefInDouble) {
  TestRun run;
  for (const Gelu kind : kKinds) {
    for (const std::int64_t F : kWidths) {
      auto gate_up = random_tensor<float>({5, 2 * F}, 1, 20.0F);
      auto dh = random_tensor<float>({5, F}, 2);
      OwnedTensor<float> h({5, F}), h_again({5, F}), dgate_up({5, 2 * F});
      geglu_forward(run, kind, gate_up, h);
      geglu_backward(run, kind, gate_up, dh, dgate_up, h_again);
      auto exact_in = gate_up.as<double>();
      auto exact_dh = dh.as<double>();
      OwnedTensor<double> exact_h({5, F}), exact_dgate_up({5, 2 * F});
      ref::geglu_backward<double>(kind, exact_in, exact_dh, exact_dgate_up, exact_h);
      // As GeluMatchesRefInDoubleOnAGrid, times up of at most 20, rounded twice more.
      EXPECT_LE(test::max_abs_difference(h, exact_h), 400 * 6 * kUlp) << F;
      EXPECT_LE(test::max_abs_difference(dgate_up, exact_dgate_up), 22 * 10 * kUlp) << F;
      EXPECT_EQ(h, h_again);
      geglu_backward(run, kind, gate_up, dh, gate_up, h);
      EXPECT_EQ(gate_up, dgate_up) << "in place";
    }
  }
}

TEST(Geglu, GradientMatchesFiniteDifferences) {
  TestRun run;
  for (const Gelu kind : kKinds) {
    auto gate_up = random_tensor<double>({3, 10}, 1, 3.0F);
    auto dh = random_tensor<double>({3, 5}, 2);
    OwnedTensor<double> h({3, 5}), dgate_up({3, 10});
    geglu_backward(run, kind, gate_up, dh, dgate_up, h);
    const auto loss = [&] {
      geglu_forward(run, kind, gate_up, h);
      return test::dot(dh, h);
    };
    EXPECT_LE(test::max_relative_error(dgate_up, test::finite_difference(gate_up, loss)), 1e-8);
  }
}

TEST(Swiglu, GradientMayOverwriteItsInput) {
  TestRun run;
  auto gate_up = random_tensor<float>({4, 2 * 65}, 1);
  auto dh = random_tensor<float>({4, 65}, 2);
  OwnedTensor<float> h({4, 65}), dgate_up({4, 2 * 65});
  swiglu_backward(run, gate_up, dh, dgate_up, h);
  swiglu_backward(run, gate_up, dh, gate_up, h);
  EXPECT_EQ(gate_up, dgate_up);
}

TEST_P(ActivationTargets, SwigluSaturatesWithoutInfinityOrNan) {
  TestRun run;
  OwnedTensor<float> gate_up({1, 8});
  const float gates[] = {-1e30F, -200.0F, 200.0F, 1e30F};
  for (std::int64_t i = 0; i < 4; ++i) {
    gate_up[i] = gates[i];
    gate_up[4 + i] = 1;
  }
  OwnedTensor<float> dh({1, 4}, 1.0F), h({1, 4}), dgate_up({1, 8});
  swiglu_backward(run, gate_up, dh, dgate_up, h);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(h[i], std::max(gates[i], 0.0F), 1e-7);
    EXPECT_NEAR(dgate_up[i], gates[i] > 0 ? 1 : 0, 1e-7);
  }
}

TEST_P(ActivationTargets, GeluMatchesRefInDoubleOnAGrid) {
  TestRun run;
  auto x = grid(20001, 16);
  auto exact_x = x.as<double>();
  OwnedTensor<float> ones(x.shape, 1.0F), y(x.shape), slope(x.shape);
  for (const Gelu kind : kKinds) {
    gelu_forward(run, kind, x, y);
    gelu_backward(run, kind, x, ones, slope);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const ref::GeluValue<double> exact = ref::gelu(kind, exact_x[i]);
      // gelu(x) / x is off by a few ulp of at most 1; where it varies, the argument v of the
      // exponential is below 16 and its rounding, v eps, changes e^-v by v e^-v eps < eps.
      EXPECT_NEAR(y[i], exact.y, 4 * kUlp * std::max(1.0, std::abs(exact_x[i]))) << x[i];
      // The slope is a difference of terms up to 2 |x| u' s (1 - s) < 2 with those same errors.
      EXPECT_NEAR(slope[i], exact.slope, 8 * kUlp) << x[i];
    }
  }
}

TEST(Gelu, MatchesKnownValues) {
  // x Phi(x) from tables of the normal distribution; the tanh form differs in the fourth digit.
  EXPECT_NEAR(ref::gelu(Gelu::kErf, 1.0).y, 0.8413447460685429, 1e-14);
  EXPECT_NEAR(ref::gelu(Gelu::kErf, -2.0).y, -0.0455002638963584, 1e-14);
  EXPECT_NEAR(ref::gelu(Gelu::kTanh, 1.0).y, 0.8411919906082768, 1e-14);
}

TEST(Gelu, GradientMatchesFiniteDifferences) {
  TestRun run;
  for (const Gelu kind : kKinds) {
    auto x = random_tensor<double>({31}, 1, 4.0F);
    auto dy = random_tensor<double>({31}, 2);
    OwnedTensor<double> y({31}), dx({31});
    gelu_backward(run, kind, x, dy, dx);
    const auto loss = [&] {
      gelu_forward(run, kind, x, y);
      return test::dot(dy, y);
    };
    EXPECT_LE(test::max_relative_error(dx, test::finite_difference(x, loss)), 1e-8);
  }
}

TEST_P(ActivationTargets, GeluSaturatesWithoutInfinityOrNan) {
  TestRun run;
  OwnedTensor<float> x({4}), dy({4}, 1.0F), y({4}), dx({4});
  const float inputs[] = {-1e25F, -100.0F, 100.0F, 1e25F};
  std::copy(std::begin(inputs), std::end(inputs), x.values.begin());
  for (const Gelu kind : kKinds) {
    gelu_forward(run, kind, x, y);
    gelu_backward(run, kind, x, dy, dx);
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(y[i], std::max(x[i], 0.0F), 1e-7);
      EXPECT_NEAR(dx[i], x[i] > 0 ? 1 : 0, 1e-7);
    }
  }
}

TEST_P(ActivationTargets, GeluKeepsNanWhereItIs) {
  TestRun run;
  for (const std::int64_t place : {0, 5, 34}) {  // in whole vectors and in what is left
    auto x = random_tensor<float>({35}, 1);
    x[place] = std::nanf("");
    OwnedTensor<float> dy({35}, 1.0F), y({35}), dx({35});
    for (const Gelu kind : kKinds) {
      gelu_forward(run, kind, x, y);
      gelu_backward(run, kind, x, dy, dx);
      for (std::int64_t i = 0; i < 35; ++i) {
        EXPECT_EQ(std::isnan(y[i]), i == place) << i;
        EXPECT_EQ(std::isnan(dx[i]), i == place) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(Activation, ThreadCountAndCutChangeNoBit) {
  auto x = random_tensor<float>({40, 2 * 515}, 1, 5.0F);
  OwnedTensor<float> gelu_one(x.shape), swiglu_one({40, 515});
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    OwnedTensor<float> y(x.shape), h({40, 515});
    gelu_forward(run, Gelu::kErf, x, y);
    swiglu_forward(run, x, h);
    if (threads == 1) {
      gelu_one = y;
      swiglu_one = h;
    }
    EXPECT_EQ(y, gelu_one);
    EXPECT_EQ(h, swiglu_one);
    // An element's bits do not depend on its place in a vector.
    gelu_forward(run, Gelu::kErf, x.view().reshaped({x.size()}).rows(3, x.size() - 2),
                 y.view().reshaped({x.size()}).rows(3, x.size() - 2));
    EXPECT_EQ(y, gelu_one);
  }
}

TEST(Gelu, BackwardMakesTheBitsOfForwardAgain) {
  TestRun run;
  auto x = random_tensor<float>({3, 1003}, 1);
  auto dy = random_tensor<float>({3, 1003}, 2);
  OwnedTensor<float> y(x.shape), again(x.shape), dx(x.shape), alone(x.shape);
  for (const Gelu kind : kKinds) {
    gelu_forward(run, kind, x, y);
    gelu_backward(run, kind, x, dy, alone);
    gelu_backward(run, kind, x, dy, dx, again);
    EXPECT_EQ(again, y);
    EXPECT_EQ(dx, alone);
  }
}

TEST(Gelu, BackwardMayWriteOverItsGradient) {
  TestRun run;
  auto x = random_tensor<float>({255}, 1, 3.0F);
  auto dy = random_tensor<float>({255}, 2);
  OwnedTensor<float> dx({255});
  for (const Gelu kind : kKinds) {
    auto in_place = dy;
    gelu_backward(run, kind, x, dy, dx);
    gelu_backward(run, kind, x, in_place, in_place);
    EXPECT_EQ(in_place, dx);
  }
}

}  // namespace
}  // namespace atl::ops
