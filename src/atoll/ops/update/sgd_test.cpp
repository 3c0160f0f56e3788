#include "atoll/ops/update/sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "atoll/ops/testing.h"
#include "atoll/ops/update/ref_sgd.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr SgdStep kSteps[] = {
    {.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.5},
    {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .grad_scale = 0.5},
    {.lr = 1e-2, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .grad_scale = 0.5},
};

TEST(Sgd, MatchesRefInDoubleOverFiveSteps) {
  TestRun run;
  for (const SgdStep& step : kSteps) {
    for (const std::int64_t n : {0, 1, 3, 17, 255, 16384 + 5}) {
      auto grad = random_tensor<float>({n}, 2);
      auto exact_grad = grad.as<double>();
      auto param = random_tensor<float>({n}, 1);
      auto exact = param.as<double>();
      OwnedTensor<float> m({n});
      OwnedTensor<double> exact_m({n});
      const bool has_m = step.momentum > 0;
      for (int i = 0; i < 5; ++i) {
        sgd(run, step, param.view(), grad, has_m ? m.view() : Tensor());
        ref::sgd<double>(step, exact.view(), exact_grad, has_m ? exact_m.view() : Tensor());
      }
      // Per step: p, below 1.2, is rounded by at most an ulp (2^-24 below 1, twice that above), and
      // the change, 0.01 of numbers below 4, has eight roundings of 2^-24 of those. m: four
      // roundings of numbers below 4.
      EXPECT_LE(test::max_abs_difference(param, exact), 5 * 2.4 * 0x1p-24) << n;
      EXPECT_LE(test::max_abs_difference(m, exact_m), 5 * 4 * 4 * 0x1p-24) << n;
    }
  }
}

TEST(Sgd, NesterovLooksOneStepAhead) {
  TestRun run;
  OwnedTensor<double> param({1}, 0.0);
  OwnedTensor<double> grad({1}, 1.0);
  OwnedTensor<double> m({1});
  const SgdStep step = {.lr = 1, .momentum = 0.5, .nesterov = true};
  sgd(run, step, param.view(), grad, m);  // m = 1; p -= 1 + 0.5
  EXPECT_EQ(param[0], -1.5);
  sgd(run, step, param.view(), grad, m);  // m = 1.5; p -= 1 + 0.75
  EXPECT_EQ(param[0], -3.25);
}

// Without gradients each step multiplies a parameter by 1 - lr weight_decay, whatever the momentum.
TEST(Sgd, DecayIsDecoupledFromTheMomentumAndFromTheGradientsScale) {
  TestRun run;
  for (const auto& [momentum, nesterov] :
       {std::pair(0.0, false), std::pair(0.75, false), std::pair(0.75, true)}) {
    OwnedTensor<double> param({1}, 2.0);
    OwnedTensor<double> grad({1}, 0.0);
    OwnedTensor<double> m({1});
    const SgdStep step = {.lr = 0.5,
                          .momentum = momentum,
                          .nesterov = nesterov,
                          .weight_decay = 0.25,
                          .grad_scale = 100};
    for (int i = 1; i <= 4; ++i) {
      sgd(run, step, param.view(), grad, momentum > 0 ? m.view() : Tensor());
      EXPECT_EQ(param[0], 2.0 * std::pow(0.875, i)) << momentum;
      EXPECT_EQ(m[0], 0);
    }
  }
}

TEST(Sgd, IsTheFormulaOfItsPage) {
  TestRun run;
  OwnedTensor<double> param({1}, 2.0);
  OwnedTensor<double> grad({1}, 3.0);
  OwnedTensor<double> m({1}, 8.0);
  sgd(run, {.lr = 0.5, .momentum = 0.5, .nesterov = true, .weight_decay = 0.25, .grad_scale = 2},
      param.view(), grad, m);
  EXPECT_EQ(m[0], 0.5 * 8 + 2 * 3);
  EXPECT_EQ(param[0], 2 - 0.5 * ((2 * 3 + 0.5 * 10) + 0.25 * 2));
}

TEST(Sgd, RefusesMomentumWithoutABufferAndABufferWithoutMomentum) {
  TestRun run;
  auto param = random_tensor<float>({8}, 1);
  auto grad = random_tensor<float>({8}, 2);
  OwnedTensor<float> m({8});
  EXPECT_THROW(sgd(run, {.lr = 1, .momentum = 0.9}, param.view(), grad, {}), Error);
  EXPECT_THROW(sgd(run, {.lr = 1}, param.view(), grad, m), Error);
  EXPECT_THROW(sgd(run, {.lr = 1, .nesterov = true}, param.view(), grad, {}), Error);
  EXPECT_THROW(sgd(run, {.lr = 1, .momentum = 1}, param.view(), grad, m), Error);
}

}  // namespace
}  // namespace atl::ops
