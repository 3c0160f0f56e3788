// Attention whose scores are capped: against exact arithmetic with windows, documents and caches,
// and its gradient against finite differences.

#include <gtest/gtest.h>

#include "atoll/ops/attention/attention_testing.h"

namespace atl::ops {
namespace {

using test::attention_tolerance;
using test::AttentionCall;
using test::error;
using test::OwnedTensor;
using test::TestRun;

// Scores are of order 1/3 and reach 1: the cap bends them.
constexpr double kCap = 0.5;

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window = 0;
  bool documents = false;

  std::string name() const {
    return fmt::format("B {} T {} heads {}/{} of {}, window {}{}", B, T, heads.num_heads,
                       heads.num_kv_heads, heads.head_dim, window, documents ? ", documents" : "");
  }
  template <typename T_>
  AttentionCall<T_> call() const {
    AttentionCall<T_> result(heads, B, T);
    result.softcap = kCap;
    result.window = window;
    if (!documents) return result;
    result.positions = OwnedTensor<std::int32_t>({B, T});
    for (std::int64_t i = 0; i < B * T; ++i) {
      const std::int64_t start = i % T < T / 3 ? 0 : T / 3;
      result.positions[i] = static_cast<std::int32_t>(i % T - start);
    }
    return result;
  }
};

const Case kCases[] = {{{1, 1, 16}, 1, 1},        {{2, 1, 17}, 2, 70},
                       {{4, 2, 64}, 1, 65},       {{2, 2, 80}, 1, 130, 20},
                       {{6, 2, 64}, 1, 257},      {{3, 1, 24}, 2, 150, 0, true},
                       {{2, 1, 130}, 1, 97},      {{1, 1, 256}, 2, 75, 40, true},
                       {{2, 1, 64}, 1, 420, 130}, {{1, 1, 260}, 1, 9}};  // wider than tiles

// What a cap adds to attention_tolerance: errors of tanh, and those of slopes, which change by up
// to 0.77 / cap times the error of a score, sqrt(D) eps.
double capped_tolerance(std::int64_t D, std::int64_t n) {
  return attention_tolerance(D, n) +
         0x1p-23 * (4 + 0.77 / kCap * std::sqrt(static_cast<double>(D)));
}

class AttentionSoftcapTargets : public test::EachTarget {};

TEST_P(AttentionSoftcapTargets, ForwardAndBackwardMatchDoubleReference) {
  TestRun run;
  for (const Case& c : kCases) {
    auto fast = c.call<float>();
    auto exact = c.call<double>();
    fast.forward(run);
    fast.backward(run);
    exact.forward(run);
    exact.backward(run);
    const std::int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
    const double bound = capped_tolerance(c.heads.head_dim, c.T * group);
    EXPECT_LE(error(fast.out, exact.out), bound) << c.name();
    EXPECT_LE(error(fast.lse, exact.lse), bound) << c.name();
    EXPECT_LE(error(fast.dqkv, exact.dqkv), bound) << c.name();
  }
}

TEST_P(AttentionSoftcapTargets, CachedChunksOfAnyLengthMatchForward) {
  TestRun run;
  const std::vector<std::int64_t> chunkings[] = {
      std::vector<std::int64_t>(90, 1), {90}, {7, 1, 64, 2, 16}, {65, 25}};
  for (const std::int64_t window : {0, 30}) {
    for (const std::vector<std::int64_t>& chunks : chunkings) {
      const Case c = {{4, 2, 50}, 2, 90, window};
      auto steps = c.call<float>();
      auto exact = c.call<double>();
      exact.forward(run);
      steps.cached(run, 100, chunks);
      EXPECT_LE(error(steps.out, exact.out), capped_tolerance(50, 90)) << window;
      auto steps_in_double = c.call<double>();
      steps_in_double.cached(run, 100, chunks);
      EXPECT_EQ(steps_in_double.out, exact.out);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionSoftcapTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(AttentionSoftcap, ReferenceGradientMatchesFiniteDifferences) {
  TestRun run;
  for (const Case& c : {Case{{4, 2, 3}, 2, 5}, Case{{2, 1, 3}, 2, 7, 3, true}}) {
    auto a = c.call<double>();
    a.forward(run);
    a.backward(run);
    const OwnedTensor<double> slope = test::finite_difference(a.qkv, [&] {
      a.forward(run);
      return test::dot(a.out, a.dout);
    });
    // As without a cap, but third derivatives grow with 1 / cap^2.
    EXPECT_LE(test::max_abs_difference(a.dqkv, slope), 4e-9) << c.name();
  }
}

TEST(AttentionSoftcap, ReferenceIsTheDefinition) {
  // One query, two keys, one element each: scores 2 and -1 before the cap.
  TestRun run;
  AttentionCall<double> a({1, 1, 1}, 1, 2);
  a.scale = 1;
  a.softcap = 1.5;
  a.qkv.values = {0, 2, 10, 1, -1, 20};
  a.forward(run);
  const double first = std::exp(1.5 * std::tanh(2 / 1.5));
  const double second = std::exp(1.5 * std::tanh(-1 / 1.5));
  EXPECT_NEAR(a.out[1], (10 * first + 20 * second) / (first + second), 1e-12);
  EXPECT_NEAR(a.lse[1], std::log(first + second), 1e-12);
}

TEST(AttentionSoftcap, ScoresOfAThousandStayBelowTheCap) {
  TestRun run;
  AttentionCall<float> fast({2, 1, 64}, 1, 130, 30.0F);
  AttentionCall<double> exact({2, 1, 64}, 1, 130, 30.0F);
  fast.softcap = exact.softcap = 50;
  fast.forward(run);
  exact.forward(run);
  EXPECT_LE(test::max_abs(exact.lse), 50 + std::log(130.0));
  // A score before the cap is of order 300 and has as many times the error of one of order 1/3.
  EXPECT_LE(error(fast.lse, exact.lse), attention_tolerance(64, 260));
  EXPECT_LE(error(fast.out, exact.out), 900 * attention_tolerance(64, 260));
}

TEST(AttentionSoftcap, ThreadCountChangesNoBit) {
  // One key-value head: with more threads than that, backward takes its other decomposition.
  const Case c = {{3, 1, 48}, 1, 600};
  auto one = c.call<float>();
  TestRun serial(1);
  one.forward(serial);
  one.backward(serial);
  for (const int num_threads : {2, 3}) {
    TestRun run(num_threads);
    auto many = c.call<float>();
    many.forward(run);
    many.backward(run);
    EXPECT_EQ(many.out, one.out) << num_threads;
    EXPECT_EQ(many.dqkv, one.dqkv) << num_threads;
  }
}

TEST(AttentionSoftcap, ANaNInAKeyReachesOnlyTheRowsThatSeeIt) {
  TestRun run;
  AttentionCall<float> a({1, 1, 32}, 1, 100);
  a.softcap = kCap;
  a.qkv[70 * a.heads.qkv_width() + 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  a.forward(run);
  a.backward(run);
  for (std::int64_t t = 0; t < 100; ++t) {
    EXPECT_EQ(std::isnan(a.out[t * 32]), t >= 70) << t;
    EXPECT_EQ(std::isnan(a.dqkv[t * a.heads.qkv_width()]), t >= 70) << t;
  }
}

TEST(AttentionSoftcap, ACapBelow0IsABug) {
  TestRun run;
  AttentionCall<float> a({1, 1, 16}, 1, 4);
  a.softcap = -1;
  EXPECT_THROW(a.forward(run), Error);
  EXPECT_THROW(a.backward(run), Error);
  EXPECT_THROW(a.cached(run, 4, {4}), Error);
}

}  // namespace
}  // namespace atl::ops
