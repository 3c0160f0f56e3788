#include "atoll/ops/update/adamw.h"

#include <gtest/gtest.h>

#include "atoll/ops/testing.h"
#include "atoll/ops/update/ref_adamw.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kSizes[] = {0, 1, 3, 17, 65, 255, 16384 + 5};

template <typename T>
struct State {
  explicit State(std::int64_t n)
      : param(random_tensor<T>({n}, 1)), grad(random_tensor<T>({n}, 2)), m({n}), v({n}) {}

  void update(Run& run, const AdamWStep& step) { adamw(run, step, param.view(), grad, m, v); }
  Tensor part(OwnedTensor<T>& whole, std::int64_t begin, std::int64_t end) {
    return whole.view().rows(begin, end);
  }

  OwnedTensor<T> param, grad, m, v;
};

AdamWStep make_step(std::int64_t number) {
  return {.lr = 1e-2, .weight_decay = 0.1, .step = number, .grad_scale = 0.5};
}

TEST(AdamW, MatchesRefInDoubleOverFiveSteps) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    State<float> fast(n);
    State<double> exact(n);
    for (std::int64_t step = 1; step <= 5; ++step) {
      fast.update(run, make_step(step));
      ref::adamw<double>(make_step(step), exact.param.view(), exact.grad, exact.m, exact.v);
    }
    // Per step: p of at most 1 is rounded to half an ulp (2^-24); the change, about lr, has ten
    // roundings of 2^-24 each, which at lr = 0.01 adds a tenth of that. m and v: four roundings.
    EXPECT_LE(test::max_abs_difference(fast.param, exact.param), 5 * 1.2 * 0x1p-24) << n;
    EXPECT_LE(test::max_abs_difference(fast.m, exact.m), 5 * 4 * 0x1p-24) << n;
    EXPECT_LE(test::max_abs_difference(fast.v, exact.v), 5 * 4 * 0x1p-24) << n;
    EXPECT_EQ(fast.grad, State<float>(n).grad);
  }
}

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheSign) {
  TestRun run;
  State<double> state(4);
  const State<double> before = state;
  state.update(run, {.lr = 1e-3, .eps = 1e-12, .step = 1});
  for (std::int64_t i = 0; i < 4; ++i) {
    const double sign = before.grad[i] > 0 ? 1 : -1;
    EXPECT_NEAR(state.param[i], before.param[i] - 1e-3 * sign, 1e-12);
  }
}

TEST(AdamW, DecayDoesNotPassThroughTheMoments) {
  TestRun run;
  State<double> state(3);
  const auto before = state.param;
  state.grad = OwnedTensor<double>({3}, 0.0);
  state.update(run, {.lr = 0.1, .weight_decay = 0.5, .step = 1});
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(state.param[i], before[i] * 0.95);
  EXPECT_EQ(state.m, OwnedTensor<double>({3}, 0.0));
}

// A shard may be cut anywhere and any number of threads may work on it.
TEST(AdamW, CutsAndThreadCountChangeNoBit) {
  const std::int64_t n = 50001;
  TestRun one(1);
  State<float> whole(n);
  whole.update(one, make_step(1));
  for (const int threads : {2, 3}) {
    TestRun run(threads);
    State<float> again(n);
    again.update(run, make_step(1));
    EXPECT_EQ(again.param, whole.param);
  }
  State<float> cut(n);
  const std::int64_t cuts[] = {0, 7, 16391, n};
  for (int i = 0; i < 3; ++i) {
    const auto part = [&](OwnedTensor<float>& x) { return x.view().rows(cuts[i], cuts[i + 1]); };
    adamw(one, make_step(1), part(cut.param), part(cut.grad), part(cut.m), part(cut.v));
  }
  EXPECT_EQ(cut.param, whole.param);
  EXPECT_EQ(cut.m, whole.m);
  EXPECT_EQ(cut.v, whole.v);
}

TEST(AdamW, RefusesStepZeroAndUnequalLengths) {
  TestRun run;
  State<float> state(8);
  EXPECT_THROW(state.update(run, make_step(0)), Error);
  OwnedTensor<float> shorter({7});
  EXPECT_THROW(adamw(run, make_step(1), state.param.view(), shorter, state.m, state.v), Error);
}

}  // namespace
}  // namespace atl::ops
