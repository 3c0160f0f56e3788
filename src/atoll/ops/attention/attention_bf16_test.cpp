// Attention on bf16: what is stored is what f32 makes of the same numbers, rounded once, and the
// log-sum-exp has the bits of f32.

#include <gtest/gtest.h>

#include "atoll/ops/attention/attention_testing.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"

namespace atl::ops {
namespace {

using test::AttentionCall;
using test::OwnedTensor;
using test::TestRun;

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
};

const Case kCases[] = {{{1, 1, 16}, 1, 1},  {{2, 2, 32}, 1, 63},  {{4, 2, 64}, 1, 65},
                       {{2, 1, 17}, 2, 70}, {{2, 1, 130}, 1, 97}, {{1, 1, 256}, 1, 75},
                       {{4, 4, 1}, 1, 33},  {{3, 1, 24}, 2, 150}};

// The same numbers in both.
struct Pair {
  explicit Pair(const Case& c) : narrow(c.heads, c.B, c.T), wide(c.heads, c.B, c.T) {
    wide.qkv = narrow.qkv.as<float>();
    wide.dout = narrow.dout.as<float>();
  }
  void cap(double softcap) { narrow.softcap = wide.softcap = softcap; }
  void hide(std::int64_t window, bool documents) {
    narrow.window = wide.window = window;
    if (!documents) return;
    const std::int64_t rows = narrow.qkv.shape.dim(1);
    OwnedTensor<std::int32_t> positions({narrow.qkv.shape.dim(0), rows});
    for (std::int64_t i = 0; i < positions.size(); ++i) {
      const std::int64_t start = i % rows < rows / 3 ? 0 : rows / 3;
      positions[i] = static_cast<std::int32_t>(i % rows - start);
    }
    narrow.positions = wide.positions = positions;
  }
  void expect_same(Run& run, const std::string& what) {
    narrow.forward(run);
    wide.forward(run);
    EXPECT_EQ(narrow.out, wide.out.as<Bf16>()) << what;
    EXPECT_EQ(narrow.lse, wide.lse) << what;
    wide.out = narrow.out.as<float>();  // backward reads what was stored
    narrow.backward(run);
    wide.backward(run);
    EXPECT_EQ(narrow.dqkv, wide.dqkv.as<Bf16>()) << what;
  }

  AttentionCall<Bf16> narrow;
  AttentionCall<float> wide;
};

// Tiles of AMX round more: attention_amx_test.cpp.
class AttentionBf16 : public ::testing::Test {
 protected:
  void SetUp() override { set_bf16_arithmetic(Bf16Arithmetic::kF32); }
  void TearDown() override { reset_bf16_arithmetic(); }
};

TEST_F(AttentionBf16, IsF32RoundedOnceOnEveryTarget) {
  TestRun run;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    test::use_target(target);
    for (const Case& c : kCases) {
      const std::string what =
          fmt::format("{} T {} head_dim {}", hwy::TargetName(target), c.T, c.heads.head_dim);
      Pair(c).expect_same(run, what);
      Pair masked(c);
      masked.hide(20, true);
      masked.expect_same(run, what + " masked");
      masked.cap(0.5);
      masked.expect_same(run, what + " masked and capped");
    }
  }
  test::use_target(0);
}

TEST_F(AttentionBf16, ThreadCountChangesNoBit) {
  const Case c = {{3, 1, 48}, 1, 300};  // one key-value head: backward is cut in two ways
  TestRun one(1);
  Pair expected(c);
  expected.expect_same(one, "1 thread");
  for (const int threads : {2, 3}) {
    TestRun run(threads);
    Pair again(c);
    again.expect_same(run, std::to_string(threads));
    EXPECT_EQ(again.narrow.out, expected.narrow.out);
    EXPECT_EQ(again.narrow.dqkv, expected.narrow.dqkv);
  }
}

TEST_F(AttentionBf16, CachedChunksAreF32RoundedOnce) {
  const std::vector<std::int64_t> chunkings[] = {{300, 1, 1}, {7, 1, 64, 2, 16}};
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    for (const HeadLayout& heads : {HeadLayout{4, 2, 32}, HeadLayout{3, 1, 50}}) {
      for (const std::vector<std::int64_t>& chunks : chunkings) {
        for (const std::int64_t window : {0, 40}) {
          Pair pair({heads, 2, 302});
          pair.hide(window, false);
          pair.cap(window == 0 ? 0 : 0.5);
          pair.narrow.cached(run, 310, chunks);
          pair.wide.cached(run, 310, chunks);
          EXPECT_EQ(pair.narrow.out, pair.wide.out.as<Bf16>()) << heads.head_dim;
        }
      }
    }
  }
}

TEST_F(AttentionBf16, HeadsTooWideForTilesAreServed) {
  TestRun run;
  Pair({{2, 1, 260}, 1, 5}).expect_same(run, "reference");
  Pair pair({{2, 1, 260}, 1, 5});
  pair.narrow.cached(run, 5, {3, 1, 1});
  pair.wide.cached(run, 5, {3, 1, 1});
  EXPECT_EQ(pair.narrow.out, pair.wide.out.as<Bf16>());
}

TEST_F(AttentionBf16, MatchesDoubleReference) {
  TestRun run;
  AttentionCall<Bf16> narrow({4, 2, 64}, 1, 130);
  AttentionCall<double> exact({4, 2, 64}, 1, 130);
  exact.qkv = narrow.qkv.as<double>();
  exact.dout = narrow.dout.as<double>();
  narrow.forward(run);
  narrow.backward(run);
  exact.forward(run);
  const double bound = test::attention_tolerance(64, 260);
  EXPECT_LE(test::max_error_beyond_rounding(narrow.out, exact.out), bound);
  exact.out = narrow.out.as<double>();
  exact.backward(run);
  EXPECT_LE(test::max_error_beyond_rounding(narrow.dqkv, exact.dqkv),
            bound * std::max(1.0, test::max_abs(exact.dqkv)));
}

}  // namespace
}  // namespace atl::ops
