#include "atoll/ops/update/lion.h"

#include <gtest/gtest.h>

#include "atoll/ops/testing.h"
#include "atoll/ops/update/ref_lion.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr LionStep kStep = {.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.5};

TEST(Lion, MatchesRefInDoubleOverFiveSteps) {
  TestRun run;
  for (const std::int64_t n : {0, 1, 3, 17, 255, 16384 + 5}) {
    auto param = random_tensor<float>({n}, 1);
    auto exact = param.as<double>();
    OwnedTensor<float> m({n});
    OwnedTensor<double> exact_m({n});
    for (std::uint64_t i = 0; i < 5; ++i) {
      // Anew, but of one sign for each element: a sum near zero could have another sign in f32.
      auto grad = random_tensor<float>({n}, 2);
      for (float& g : grad.values) g *= 1 + 0.1F * static_cast<float>(i);
      auto exact_grad = grad.as<double>();
      lion(run, kStep, param.view(), grad, m);
      ref::lion<double>(kStep, exact.view(), exact_grad, exact_m);
    }
    // Per step: p, below 1.1, is rounded to at most an ulp of 2^-23 / 2, and the change, about
    // 0.01, by four of 2^-24. m: three roundings of numbers below 1.
    EXPECT_LE(test::max_abs_difference(param, exact), 5 * 1.2 * 0x1p-24) << n;
    EXPECT_LE(test::max_abs_difference(m, exact_m), 5 * 3 * 0x1p-24) << n;
  }
}

TEST(Lion, StepsByTheLearningRateAndNotAtAllWithoutAGradient) {
  TestRun run;
  for (const std::int64_t n : {4, 64}) {
    OwnedTensor<float> param({n}, 1.0F);
    OwnedTensor<float> grad({n});
    for (std::int64_t i = 0; i < n; ++i) grad[i] = static_cast<float>(i % 3 - 1) * 1e-6F;
    OwnedTensor<float> m({n});
    lion(run, {.lr = 0.25}, param.view(), grad, m);
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(param[i], 1.0F - 0.25F * static_cast<float>(i % 3 - 1));
    }
  }
}

TEST(Lion, TheTwoBetasServeTheSignAndTheMomentum) {
  TestRun run;
  OwnedTensor<double> param({1}, 0.0);
  OwnedTensor<double> m({1}, 1.0);
  OwnedTensor<double> grad({1}, -2.0);
  // The sign is that of 0.5 * 1 - 0.5 * 2, the momentum 0.75 * 1 - 0.25 * 2.
  lion(run, {.lr = 1, .beta1 = 0.5, .beta2 = 0.75}, param.view(), grad, m);
  EXPECT_EQ(param[0], 1.0);
  EXPECT_EQ(m[0], 0.25);
}

}  // namespace
}  // namespace atl::ops
