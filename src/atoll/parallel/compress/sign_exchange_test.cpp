#include "atoll/parallel/compress/sign_exchange.h"

#include <gtest/gtest.h>

#include <numeric>

#include "atoll/base/rng.h"
#include "atoll/parallel/compress/zero_one_adam.h"

namespace atl::parallel {
namespace {

constexpr std::size_t kElements = 1000;

std::vector<float> drawn(std::uint64_t seed) {
  const RngStream stream(seed, RngPurpose::kSynthetic, 0);
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) values[i] = stream.normal(i);
  return values;
}

// Second moments of very different size, and some that never had a gradient.
std::vector<float> moments() {
  std::vector<float> v = drawn(2);
  for (std::size_t i = 0; i < kElements; ++i) {
    v[i] = i % 7 == 3 ? 0 : std::ldexp(v[i] * v[i] + 0.01F, -static_cast<int>(i % 20));
  }
  return v;
}

struct Coded {
  std::vector<float> residual;
  std::vector<std::byte> code;
};

Coded coded(std::vector<float> momenta, const std::vector<float>& v, const SignUnits& units) {
  Coded coded = {std::move(momenta), std::vector<std::byte>(4 + (kElements + 7) / 8)};
  encode_signs(coded.residual, v.data(), units, coded.code.data());
  return coded;
}

TEST(SignCodes, SayTheMeanMagnitudeAndOweTheRest) {
  const std::vector<float> m = drawn(1);
  const std::vector<float> v = moments();
  const SignUnits units = sign_units(0.99, 1e-8, 40);
  const Coded result = coded(m, v, units);
  const Signs signs(result.code.data());
  double magnitudes = 0;
  int unmasked = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    if (v[i] == 0) {
      EXPECT_EQ(result.residual[i], 0) << i;
      continue;
    }
    magnitudes += static_cast<double>(std::abs(m[i]) / units.of(v[i]));
    ++unmasked;
    EXPECT_EQ(std::signbit(signs(i)), std::signbit(m[i])) << i;
    // Residuals are rounded to a grid of 2^-22 of the largest of their 256 neighbours.
    float largest = std::abs(m[i]);
    for (std::size_t j = i / 256 * 256; j < std::min(kElements, i / 256 * 256 + 256); ++j) {
      largest = std::max({largest, std::abs(result.residual[j]), std::abs(m[j])});
    }
    const float whole = signs(i) * units.of(v[i]) + result.residual[i];
    EXPECT_NEAR(whole, m[i], std::ldexp(largest, -21)) << i;
  }
  EXPECT_NEAR(std::abs(signs(0)), magnitudes / unmasked, 1e-5 * std::abs(signs(0)));
}

TEST(SignCodes, AreRecoveredFromTheMomentaThatTheyMade) {
  const std::vector<float> v = moments();
  for (std::uint64_t seed = 10; seed < 200; ++seed) {
    const SignUnits units = sign_units(0.999, 1e-8, static_cast<std::int64_t>(seed));
    const Coded result = coded(drawn(seed), v, units);
    std::vector<float> m(kElements);
    const auto say = [&](const std::vector<std::byte>& code) {
      const Signs signs(code.data());
      for (std::size_t i = 0; i < kElements; ++i) {
        m[i] = (v[i] == 0 ? 0 : signs(i)) * units.of(v[i]);
      }
      return m;
    };
    const std::vector<float> said = say(result.code);
    std::vector<std::byte> again(result.code.size());
    recover_signs(said, v.data(), units, again.data());
    EXPECT_EQ(say(again), said) << seed;
  }
}

TEST(ZeroOneSchedules, IntervalsBetweenUpdatesDouble) {
  const ZeroOneSchedule schedule = {.warmup = 60, .doubling = 4};
  std::vector<std::int64_t> updates;
  for (std::int64_t step = 0; step < 100; ++step) {
    if (schedule.updates_second(step)) updates.push_back(step);
  }
  EXPECT_EQ(updates,
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 36, 44, 52}));
}

TEST(ZeroOneSchedules, LocalStepsDoubleWhenTheLearningRateHalves) {
  const ZeroOneSchedule schedule = {.max_local = 12};
  EXPECT_EQ(schedule.local_steps(1), 2);
  EXPECT_EQ(schedule.local_steps(0.51), 2);
  EXPECT_EQ(schedule.local_steps(0.5), 4);
  EXPECT_EQ(schedule.local_steps(0.25), 8);
  EXPECT_EQ(schedule.local_steps(0.1), 12);
  EXPECT_EQ(schedule.local_steps(0), 12);
  EXPECT_EQ((ZeroOneSchedule{.max_local = 1}).local_steps(1), 1);
}

}  // namespace
}  // namespace atl::parallel
