// How parameters are kept: what every optimizer's kernel shares. Plain gradient descent with a
// learning rate that is a power of two stands for all: p - lr g is then rounded once, in f32, with
// and without fused multiply-adds.

#include "atoll/ops/update/update_target.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "atoll/ops/testing.h"
#include "atoll/ops/update/ref_sgd.h"
#include "atoll/ops/update/sgd.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kSizes[] = {0, 1, 7, 8, 17, 255, 256, 257, 1031};
constexpr SgdStep kStep = {.lr = 0x1p-6};

OwnedTensor<Bf16> random_bf16(std::int64_t n, std::uint64_t seed) {
  const auto wide = random_tensor<float>({n}, seed);
  OwnedTensor<Bf16> narrow({n});
  for (std::int64_t i = 0; i < n; ++i) narrow[i] = to_bf16(wide[i]);
  return narrow;
}

UpdateTarget stochastic(Tensor values, std::int64_t first_element = 0, std::uint64_t seed = 5,
                        std::int64_t step = 3) {
  UpdateTarget target(values);
  target.first_element = first_element;
  target.rounding = rounding_stream(seed, step);
  return target;
}

OwnedTensor<Bf16> all_bf16() {
  OwnedTensor<Bf16> all({1 << 16});
  for (std::int64_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

bool same_or_both_nan(Bf16 a, Bf16 b) {
  return a == b || (std::isnan(to_f32(a)) && std::isnan(to_f32(b)));
}

TEST(UpdateTarget, RoundsStochasticallyToTheBitsOfRef) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t first : {0, 3, 8, 1 << 20}) {
      auto grad = random_tensor<float>({n}, 2);
      auto fast = random_bf16(n, 1);
      auto exact = fast;
      sgd(run, kStep, stochastic(fast, first), grad, {});
      ref::sgd<float>(kStep, stochastic(exact, first), grad, {});
      EXPECT_EQ(fast, exact) << n << " from " << first;
    }
  }
}

TEST(UpdateTarget, RoundsMastersToNearestAsRefDoes) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    auto grad = random_tensor<float>({n}, 2);
    auto master = random_tensor<float>({n}, 1);
    auto exact_master = master;
    OwnedTensor<Bf16> values({n});
    OwnedTensor<Bf16> exact_values({n});
    UpdateTarget fast(values);
    fast.master = master;
    UpdateTarget exact(exact_values);
    exact.master = exact_master;
    sgd(run, kStep, fast, grad, {});
    ref::sgd<float>(kStep, exact, grad, {});
    EXPECT_EQ(master, exact_master) << n;
    EXPECT_EQ(values, exact_values) << n;
  }
}

// Every sign, exponent and upper fraction, with lower halves around the ties: from 0, with a
// learning rate of 1, the gradient's negative is what is rounded.
TEST(UpdateTarget, RoundsEveryKindOfNumberAsTheScalarFunctionsDo) {
  TestRun run;
  constexpr SgdStep kAll = {.lr = 1};
  const OwnedTensor<Bf16> zeros({1 << 16});
  for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
    OwnedTensor<float> grad(zeros.shape);
    for (std::int64_t i = 0; i < grad.size(); ++i) {
      grad[i] = std::bit_cast<float>((static_cast<std::uint32_t>(i) << 16) | lower);
    }
    auto nearest = zeros;
    OwnedTensor<float> master(zeros.shape);
    UpdateTarget target(nearest);
    target.master = master;
    sgd(run, kAll, target, grad, {});
    auto random = zeros;
    auto random_ref = zeros;
    sgd(run, kAll, stochastic(random), grad, {});
    ref::sgd<float>(kAll, stochastic(random_ref), grad, {});
    for (std::int64_t i = 0; i < zeros.size(); ++i) {
      ASSERT_EQ(nearest[i], to_bf16(master[i])) << i << " " << lower;
      ASSERT_TRUE(same_or_both_nan(random[i], random_ref[i])) << i << " " << lower;
    }
  }
}

TEST(UpdateTarget, AStepOfNothingLeavesEveryFiniteBf16AsItIs) {
  TestRun run;
  auto values = all_bf16();
  const auto before = values;
  auto grad = OwnedTensor<float>(values.shape);
  for (std::int64_t step = 1; step <= 3; ++step) {
    sgd(run, kStep, stochastic(values, 0, 5, step), grad, {});
  }
  for (std::int64_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(to_f32(before[i]))) continue;
    ASSERT_EQ(values[i], before[i]) << i;
  }
}

// From 1 down by a quarter of the spacing below it (2^-8): bf16 holds the mean of many, and no
// single one of them.
TEST(UpdateTarget, StochasticRoundingIsRightOnAverage) {
  TestRun run;
  constexpr std::int64_t kN = 1 << 16;
  const OwnedTensor<Bf16> ones({kN}, to_bf16(1.0F));
  auto grad = OwnedTensor<float>({kN}, 1.0F);
  for (const std::int64_t step : {1, 2}) {
    auto values = ones;
    sgd(run, {.lr = 0x1p-10}, stochastic(values, 0, 5, step), grad, {});
    double sum = 0;
    for (const Bf16 value : values.values) sum += static_cast<double>(to_f32(value));
    const double deviation = 0x1p-8 * std::sqrt(0.25 * 0.75 / kN);
    EXPECT_NEAR(sum / kN, 1 - 0x1p-10, 5 * deviation);
  }
}

TEST(UpdateTarget, SeedStepAndElementEachChangeTheDraws) {
  TestRun run;
  const std::int64_t n = 4096;
  auto grad = random_tensor<float>({n}, 2);
  const auto after = [&](std::int64_t first, std::uint64_t seed, std::int64_t step) {
    auto values = random_bf16(n, 1);
    sgd(run, kStep, stochastic(values, first, seed, step), grad, {});
    return values;
  };
  const auto reference = after(0, 5, 3);
  EXPECT_EQ(after(0, 5, 3), reference);
  EXPECT_NE(after(0, 6, 3), reference);
  EXPECT_NE(after(0, 5, 4), reference);
  EXPECT_NE(after(1, 5, 3), reference);
}

TEST(UpdateTarget, CutsAndThreadCountChangeNoBit) {
  const std::int64_t n = 50001;
  auto grad = random_tensor<float>({n}, 2);
  TestRun one(1);
  auto whole = random_bf16(n, 1);
  sgd(one, kStep, stochastic(whole), grad, {});
  for (const int threads : {2, 3}) {
    TestRun run(threads);
    auto again = random_bf16(n, 1);
    sgd(run, kStep, stochastic(again), grad, {});
    EXPECT_EQ(again, whole);
  }
  auto cut = random_bf16(n, 1);
  const std::int64_t cuts[] = {0, 7, 16391, 16392, n};
  for (int i = 0; i < 4; ++i) {
    sgd(one, kStep, stochastic(cut.view().rows(cuts[i], cuts[i + 1]), cuts[i]),
        grad.view().rows(cuts[i], cuts[i + 1]), {});
  }
  EXPECT_EQ(cut, whole);
}

TEST(UpdateTarget, WidensExactly) {
  TestRun run;
  auto values = all_bf16();
  OwnedTensor<float> master(values.shape);
  widen(run, values, master);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(master[i]), static_cast<std::uint32_t>(i) << 16);
  }
}

TEST(UpdateTarget, RefusesOperandsOfAnotherKind) {
  TestRun run;
  auto narrow = random_bf16(8, 1);
  auto wide = random_tensor<float>({8}, 1);
  auto exact = random_tensor<double>({8}, 1);
  EXPECT_THROW(sgd(run, kStep, narrow.view(), narrow, {}), Error) << "bf16 gradients";
  EXPECT_THROW(sgd(run, kStep, wide.view(), exact, {}), Error);
  UpdateTarget target(wide);
  target.master = wide;
  EXPECT_THROW(sgd(run, kStep, target, wide, {}), Error) << "masters of f32";
  OwnedTensor<std::int32_t> integers({8});
  EXPECT_THROW(sgd(run, kStep, integers.view(), wide, {}), Error);
}

}  // namespace
}  // namespace atl::ops
