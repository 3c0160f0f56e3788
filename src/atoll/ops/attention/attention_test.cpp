#include "atoll/ops/attention/attention.h"

#include <gtest/gtest.h>

#include "atoll/ops/attention/attention_testing.h"

namespace atl::ops {
namespace {

using test::attention_tolerance;
using test::AttentionCall;
using test::error;
using test::OwnedTensor;
using test::TestRun;

// One shape of many, and what a failure calls it.
struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;

  std::string name() const {
    return fmt::format("B {} T {} heads {}/{} of {}", B, T, heads.num_heads, heads.num_kv_heads,
                       heads.head_dim);
  }
};

const Case kCases[] = {
    {{1, 1, 16}, 1, 1},    {{2, 1, 64}, 2, 2},   {{2, 2, 32}, 1, 63},  {{3, 1, 24}, 2, 64},
    {{4, 2, 64}, 1, 65},   {{2, 2, 80}, 1, 130}, {{6, 2, 64}, 1, 257}, {{2, 1, 17}, 2, 70},
    {{1, 1, 128}, 1, 100}, {{2, 1, 130}, 1, 97}, {{1, 1, 256}, 2, 75}, {{4, 4, 1}, 1, 33},
};

class AttentionTargets : public test::EachTarget {};

TEST_P(AttentionTargets, ForwardAndBackwardMatchDoubleReference) {
  TestRun run;
  for (const Case& c : kCases) {
    AttentionCall<float> fast(c.heads, c.B, c.T);
    AttentionCall<double> exact(c.heads, c.B, c.T);
    fast.forward(run);
    fast.backward(run);
    exact.forward(run);
    exact.backward(run);
    const std::int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
    const double bound = attention_tolerance(c.heads.head_dim, c.T * group);
    EXPECT_LE(error(fast.out, exact.out), bound) << c.name();
    EXPECT_LE(error(fast.lse, exact.lse), bound) << c.name();
    EXPECT_LE(error(fast.dqkv, exact.dqkv), bound) << c.name();
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(Attention, ReferenceGradientMatchesFiniteDifferences) {
  TestRun run;
  AttentionCall<double> a({4, 2, 3}, 2, 5);
  a.forward(run);
  a.backward(run);
  const OwnedTensor<double> slope = test::finite_difference(a.qkv, [&] {
    a.forward(run);
    return test::dot(a.out, a.dout);
  });
  // Central differences with h = 1e-5: truncation h^2 times third derivatives of order 1, and
  // rounding 1e-16 * 10 / h, both about 1e-10.
  EXPECT_LE(test::max_abs_difference(a.dqkv, slope), 1e-9);
}

TEST(Attention, HeadsTooWideForTilesAreServedInF32) {
  TestRun run;
  AttentionCall<float> wide({1, 1, 260}, 1, 3);
  AttentionCall<double> exact({1, 1, 260}, 1, 3);
  wide.forward(run);
  wide.backward(run);
  exact.forward(run);
  exact.backward(run);
  EXPECT_LE(error(wide.out, exact.out), attention_tolerance(260, 3));
  EXPECT_LE(error(wide.dqkv, exact.dqkv), attention_tolerance(260, 3));
}

TEST(Attention, ThreadCountChangesNoBit) {
  // One key-value head: with more threads than that, backward takes its other decomposition.
  const Case cases[] = {{{3, 1, 48}, 1, 600}, {{4, 4, 40}, 2, 150}, {{2, 1, 160}, 1, 290}};
  for (const Case& c : cases) {
    AttentionCall<float> one(c.heads, c.B, c.T);
    TestRun serial(1);
    one.forward(serial);
    one.backward(serial);
    for (const int num_threads : {2, 3, 8}) {
      TestRun run(num_threads);
      AttentionCall<float> many(c.heads, c.B, c.T);
      many.forward(run);
      many.backward(run);
      EXPECT_EQ(many.out, one.out) << c.name() << " threads " << num_threads;
      EXPECT_EQ(many.lse, one.lse) << c.name() << " threads " << num_threads;
      EXPECT_EQ(many.dqkv, one.dqkv) << c.name() << " threads " << num_threads;
    }
  }
}

TEST(Attention, ScoresOfAThousandStayFiniteAndRight) {
  TestRun run;
  // Scores reach 64 * 30^2 / 3 / 8 = 2400 for a query that equals its key, and hundreds elsewhere.
  AttentionCall<float> fast({2, 1, 64}, 1, 130, 30.0F);
  AttentionCall<double> exact({2, 1, 64}, 1, 130, 30.0F);
  for (std::int64_t t = 0; t < 130; t += 2) {
    for (std::int64_t d = 0; d < 64; ++d) {
      const std::int64_t row = t * fast.heads.qkv_width();
      fast.qkv[row + d] = fast.qkv[row + 128 + d];
      exact.qkv[row + d] = exact.qkv[row + 128 + d];
    }
  }
  fast.forward(run);
  fast.backward(run);
  exact.forward(run);
  exact.backward(run);
  ASSERT_GE(test::max_abs(exact.lse), 1000);
  // A score's error grows with its size, and the probabilities' relative error is as large.
  const double bound = 2 * test::max_abs(exact.lse) * attention_tolerance(64, 260);
  EXPECT_LE(error(fast.lse, exact.lse), attention_tolerance(64, 260));
  EXPECT_LE(error(fast.out, exact.out), bound);
  EXPECT_LE(error(fast.dqkv, exact.dqkv), bound);
}

TEST(Attention, LaterRowsChangeNoBitOfEarlierOnes) {
  TestRun run;
  constexpr std::int64_t kRows = 150;
  AttentionCall<float> before({2, 1, 32}, 1, kRows);
  before.forward(run);
  for (const std::int64_t seen : {1, 15, 16, 17, 64, 100}) {
    AttentionCall<float> after({2, 1, 32}, 1, kRows);
    for (std::int64_t i = seen * after.heads.qkv_width(); i < after.qkv.size(); ++i) {
      after.qkv[i] = 100 - after.qkv[i];
    }
    after.forward(run);
    for (std::int64_t i = 0; i < seen * after.heads.query_width(); ++i) {
      ASSERT_EQ(after.out[i], before.out[i]) << "row " << i / 64 << " saw row " << seen;
    }
  }
}

TEST(Attention, ANaNInAKeyReachesEveryRowThatSeesIt) {
  TestRun run;
  AttentionCall<float> a({1, 1, 32}, 1, 100);
  a.qkv[70 * a.heads.qkv_width() + 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  a.forward(run);
  for (std::int64_t t = 0; t < 100; ++t) {
    EXPECT_EQ(std::isnan(a.out[t * 32]), t >= 70) << t;
  }
  a.backward(run);
  EXPECT_TRUE(std::isnan(a.dqkv[99 * a.heads.qkv_width()]));
}

TEST_P(AttentionTargets, CachedChunksOfAnyLengthMatchForward) {
  TestRun run;
  const std::vector<std::int64_t> chunkings[] = {
      std::vector<std::int64_t>(90, 1), {90}, {7, 1, 64, 2, 16}, {1, 89}, {65, 25}};
  for (const HeadLayout& heads : {HeadLayout{4, 2, 32}, HeadLayout{3, 1, 50}}) {
    for (const std::vector<std::int64_t>& chunks : chunkings) {
      AttentionCall<float> steps(heads, 2, 90);
      AttentionCall<double> exact(heads, 2, 90);
      exact.forward(run);
      steps.cached(run, 100, chunks);
      EXPECT_LE(error(steps.out, exact.out), attention_tolerance(heads.head_dim, 90))
          << heads.head_dim << " in " << chunks.size() << " chunks";
      AttentionCall<double> steps_in_double(heads, 2, 90);
      steps_in_double.cached(run, 100, chunks);
      EXPECT_EQ(steps_in_double.out, exact.out);
    }
  }
}

TEST(AttentionCached, LongCachesAreMergedFromRangesWhateverTheThreads) {
  TestRun run;
  AttentionCall<double> exact({4, 2, 24}, 1, 1100);
  exact.forward(run);
  AttentionCall<float> one({4, 2, 24}, 1, 1100);
  for (const int num_threads : {1, 2, 3}) {
    TestRun threads(num_threads);
    AttentionCall<float> steps({4, 2, 24}, 1, 1100);
    steps.cached(threads, 1100, {255, 1, 1, 767, 1, 1, 74});
    EXPECT_LE(error(steps.out, exact.out), attention_tolerance(24, 1100));
    if (num_threads == 1) one.out = steps.out;
    EXPECT_EQ(steps.out, one.out) << num_threads;
  }
}

TEST(AttentionCached, ScratchForAnEarlierRowCoversALaterOne) {
  // A generation plans its scratch once, before it knows how long it will be.
  const HeadLayout heads = {4, 2, 64};
  TestRun run(2, attention_scratch_bytes(heads, {Dtype::kF32, {1, 1, heads.qkv_width()}}));
  OwnedTensor<float> cache({1, 20000, heads.kv_width()}, 0.5F);
  OwnedTensor<float> values = cache;
  OwnedTensor<float> qkv({1, 1, heads.qkv_width()}, 0.5F);
  OwnedTensor<float> out({1, 1, heads.query_width()});
  attention_cached(run, heads, 0.125, {}, 19999, qkv, cache, values, out);
  // All keys and values are the same, so attention returns the value.
  EXPECT_LE(test::max_abs_difference(out, OwnedTensor<float>(out.shape, 0.5F)),
            attention_tolerance(64, 20000));
}

TEST(AttentionCached, AFullCacheIsABug) {
  TestRun run;
  const HeadLayout heads = {1, 1, 16};
  OwnedTensor<float> cache({1, 4, 16});
  OwnedTensor<float> qkv({1, 1, 48});
  OwnedTensor<float> out({1, 1, 16});
  EXPECT_THROW(attention_cached(run, heads, 1, {}, 4, qkv, cache, cache, out), Error);
}

TEST(Attention, OperandsThatDoNotFitAreABug) {
  TestRun run;
  AttentionCall<float> a({2, 1, 16}, 1, 4);
  a.out = OwnedTensor<float>({1, 4, 48});
  EXPECT_THROW(a.forward(run), Error);
  AttentionCall<float> b({3, 3, 16}, 1, 4);
  b.heads.num_kv_heads = 2;
  EXPECT_THROW(b.forward(run), Error);
}

}  // namespace
}  // namespace atl::ops
