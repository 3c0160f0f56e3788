// Attention in tiles of AMX against exact arithmetic, with masks, odd lengths and grouped queries;
// its bits do not depend on threads.

#include <gtest/gtest.h>

#include "atoll/ops/attention/attention_testing.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/profile.h"
#include "atoll/simd/amx.h"

namespace atl::ops {
namespace {

using test::AttentionCall;
using test::OwnedTensor;
using test::TestRun;

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window = 0;
  bool documents = false;
};

const Case kCases[] = {{{1, 1, 32}, 1, 1},
                       {{2, 2, 32}, 2, 63},
                       {{4, 2, 64}, 1, 65},
                       {{3, 1, 96}, 2, 130},
                       {{2, 1, 128}, 1, 300},
                       {{2, 2, 64}, 1, 257, 20},
                       {{2, 1, 64}, 2, 200, 0, true},
                       {{2, 1, 64}, 1, 333, 70, true},
                       {{1, 1, 32}, 1, 1100}};

class AttentionAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!simd::has_amx()) GTEST_SKIP() << "this CPU has no AMX";
    set_bf16_arithmetic(Bf16Arithmetic::kAmx);
  }
  void TearDown() override { reset_bf16_arithmetic(); }
};

TEST_F(AttentionAmx, LeavesCappedScoresToTheNextImplementation) {
  TestRun run;
  AttentionCall<Bf16> capped({2, 1, 64}, 1, 65), tiles({2, 1, 64}, 1, 65);
  capped.softcap = tiles.softcap = 0.5;
  capped.forward(run);
  capped.backward(run);
  set_bf16_arithmetic(Bf16Arithmetic::kF32);
  tiles.forward(run);
  tiles.backward(run);
  EXPECT_EQ(capped.out, tiles.out);
  EXPECT_EQ(capped.dqkv, tiles.dqkv);
}

template <typename T>
AttentionCall<T> call_of(const Case& c) {
  AttentionCall<T> call(c.heads, c.B, c.T);
  call.window = c.window;
  if (!c.documents) return call;
  call.positions = OwnedTensor<std::int32_t>({c.B, c.T});
  for (std::int64_t i = 0; i < call.positions.size(); ++i) {
    const std::int64_t start = i % c.T < c.T / 3 ? 0 : c.T / 3;
    call.positions[i] = static_cast<std::int32_t>(i % c.T - start);
  }
  return call;
}

template <typename T>
double root_mean_square(const OwnedTensor<T>& a, const OwnedTensor<double>& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = test::number<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// A term of a sum is rounded as a probability, as the gradient of a score, or both, and the result
// once more, each by 2^-9 of itself at most. These roundings are independent of each other, as the
// terms of a sum are, so that its error is to its size as theirs is to theirs.
template <typename T>
void expect_close(const OwnedTensor<T>& fast, const OwnedTensor<double>& exact) {
  const double magnitude = root_mean_square(exact, OwnedTensor<double>(exact.shape));
  EXPECT_LE(root_mean_square(fast, exact), 3 * 0x1p-9 * magnitude);
}

TEST_F(AttentionAmx, MatchesDoubleReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("T {} head_dim {} window {} documents {}", c.T, c.heads.head_dim,
                             c.window, c.documents));
    TestRun run(2, std::size_t{128} << 20);
    OpProfile profile;
    run.run.profile = &profile;
    auto narrow = call_of<Bf16>(c);
    auto exact = call_of<double>(c);
    exact.qkv = narrow.qkv.as<double>();
    exact.dout = narrow.dout.as<double>();
    narrow.forward(run);
    narrow.backward(run);
    for (const auto& row : profile.rows()) EXPECT_EQ(row.implementation, "amx");
    exact.forward(run);
    // Values are below 1, and probabilities sum to 1.
    EXPECT_LE(test::max_error_beyond_rounding(narrow.out, exact.out), 1.01 * 0x1p-9);
    EXPECT_LE(test::max_abs_difference(narrow.lse, exact.lse),
              test::attention_tolerance(c.heads.head_dim, c.T));
    exact.out = narrow.out.as<double>();
    exact.backward(run);
    expect_close(narrow.dqkv, exact.dqkv);
  }
}

TEST_F(AttentionAmx, TheNumberOfThreadsChangesNoBit) {
  for (const Case& c : kCases) {
    TestRun one(1), three(3);
    auto expected = call_of<Bf16>(c), again = expected;
    expected.forward(one);
    expected.backward(one);
    again.forward(three);
    again.backward(three);
    EXPECT_TRUE(again.out == expected.out);
    EXPECT_TRUE(again.lse == expected.lse);
    EXPECT_TRUE(again.dqkv == expected.dqkv);
  }
}

TEST_F(AttentionAmx, LeavesHeadsOfOtherWidthsToOthers) {
  TestRun run;
  for (const HeadLayout& heads : {HeadLayout{1, 1, 48}, HeadLayout{1, 1, 160}}) {
    OpProfile profile;
    run.run.profile = &profile;
    AttentionCall<Bf16> call(heads, 1, 40);
    call.forward(run);
    EXPECT_EQ(profile.rows().at(0).implementation, "cpu");
  }
}

}  // namespace
}  // namespace atl::ops
