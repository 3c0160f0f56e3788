#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "atoll/ops/attention/attention_testing.h"

namespace atl::ops {
namespace {

using test::attention_tolerance;
using test::AttentionCall;
using test::error;
using test::OwnedTensor;
using test::TestRun;
using test::use_target;

// The positions of documents of 1 to 90 rows, many of them short, in B rows of T.
OwnedTensor<std::int32_t> random_documents(std::int64_t B, std::int64_t T, std::uint64_t seed) {
  const RngStream stream(seed, RngPurpose::kSynthetic);
  constexpr std::uint32_t kLongest[] = {1, 3, 20, 90};
  OwnedTensor<std::int32_t> positions({B, T});
  std::uint64_t draw = 0;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 0, start = 0; t < T; start = t) {
      const std::uint32_t longest = kLongest[stream.word(draw++) % 4];
      const std::int64_t end = std::min<std::int64_t>(T, start + 1 + stream.word(draw++) % longest);
      for (; t < end; ++t) positions[b * T + t] = static_cast<std::int32_t>(t - start);
    }
  }
  return positions;
}

// The positions of B rows of T that are one document each.
OwnedTensor<std::int32_t> in_order(std::int64_t B, std::int64_t T) {
  OwnedTensor<std::int32_t> positions({B, T});
  for (std::int64_t i = 0; i < B * T; ++i) positions[i] = static_cast<std::int32_t>(i % T);
  return positions;
}

struct Masked {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window;
  bool documents;

  std::string name() const {
    return fmt::format("B {} T {} heads {}/{} of {}, window {}{}", B, T, heads.num_heads,
                       heads.num_kv_heads, heads.head_dim, window, documents ? ", documents" : "");
  }
  template <typename T_>
  AttentionCall<T_> call() const {
    AttentionCall<T_> result(heads, B, T);
    result.window = window;
    if (documents) result.positions = random_documents(B, T, 7);
    return result;
  }
};

// Every head_dim with every window, and with documents where the window does not hide them.
std::vector<Masked> all_masks() {
  constexpr std::int64_t T = 135;  // two tiles of queries and a bit
  const HeadLayout layouts[] = {{2, 1, 6},  {2, 2, 32},  {3, 1, 64},
                                {1, 1, 80}, {2, 1, 128}, {1, 1, 160}};
  std::vector<Masked> masks;
  for (const HeadLayout& heads : layouts) {
    for (const std::int64_t window : {0, 1, 3, 17, 64, 100}) {
      for (const bool documents : {false, true}) {
        if (documents ? window < 64 : window > 0) {
          masks.push_back({heads, 1, T, window, documents});
        }
      }
    }
  }
  masks.push_back({{4, 2, 24}, 3, 70, 40, true});  // each sequence has its own documents
  masks.push_back({{2, 1, 64}, 1, 420, 0, true});
  masks.push_back({{2, 1, 16}, 1, 420, 130, false});
  return masks;
}

TEST(AttentionMask, ForwardAndBackwardMatchDoubleReferenceOnEveryTarget) {
  TestRun run;
  for (const Masked& masked : all_masks()) {
    auto exact = masked.call<double>();
    exact.forward(run);
    exact.backward(run);
    const std::int64_t group = masked.heads.num_heads / masked.heads.num_kv_heads;
    const double bound = attention_tolerance(masked.heads.head_dim, masked.T * group);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      use_target(target);
      auto fast = masked.call<float>();
      fast.forward(run);
      fast.backward(run);
      EXPECT_LE(error(fast.out, exact.out), bound) << masked.name();
      EXPECT_LE(error(fast.lse, exact.lse), bound) << masked.name();
      EXPECT_LE(error(fast.dqkv, exact.dqkv), bound) << masked.name();
    }
    use_target(0);
  }
}

// Rows [begin, end) of one sequence of `whole` (rows, width).
template <typename T>
OwnedTensor<T> rows_of(const OwnedTensor<T>& whole, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = whole.shape.dim(-1);
  OwnedTensor<T> part({1, end - begin, width});
  std::copy_n(whole.values.begin() + begin * width, (end - begin) * width, part.values.begin());
  return part;
}

// Attends each document of the call's only sequence on its own, without a mask.
template <typename T, typename Check>
void for_each_document(Run& run, const AttentionCall<T>& packed, Check&& check) {
  const std::int64_t num_rows = packed.qkv.shape.dim(1);
  for (std::int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    while (end < num_rows && packed.positions[end] == end - begin) ++end;
    AttentionCall<T> alone(packed.heads, 1, end - begin);
    alone.qkv = rows_of(packed.qkv, begin, end);
    alone.dout = rows_of(packed.dout, begin, end);
    alone.window = packed.window;
    alone.forward(run);
    alone.backward(run);
    check(alone, begin, end);
  }
}

TEST(AttentionMask, PackedDocumentsAreSeparateDocuments) {
  TestRun run;
  for (const std::int64_t window : {0, 5, 40}) {
    const Masked masked = {{4, 2, 32}, 1, 300, window, true};
    auto exact = masked.call<double>();
    exact.forward(run);
    exact.backward(run);
    // The reference goes row by row, so that not a bit depends on what else is in the sequence.
    for_each_document(run, exact, [&](const auto& alone, std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(rows_of(exact.out, begin, end), alone.out) << begin;
      EXPECT_EQ(rows_of(exact.dqkv, begin, end), alone.dqkv) << begin;
    });
    auto fast = masked.call<float>();
    fast.forward(run);
    fast.backward(run);
    const double bound = 2 * attention_tolerance(32, 2 * 90);
    for_each_document(run, fast, [&](const auto& alone, std::int64_t begin, std::int64_t end) {
      EXPECT_LE(error(rows_of(fast.out, begin, end), alone.out.template as<double>()), bound);
      EXPECT_LE(error(rows_of(fast.dqkv, begin, end), alone.dqkv.template as<double>()), bound);
    });
  }
}

TEST(AttentionMask, ReferenceGradientMatchesFiniteDifferences) {
  TestRun run;
  for (const std::int64_t window : {0, 1, 3}) {
    AttentionCall<double> call({4, 2, 3}, 2, 7);
    call.window = window;
    call.positions = random_documents(2, 7, 3);
    call.forward(run);
    call.backward(run);
    const OwnedTensor<double> slope = test::finite_difference(call.qkv, [&] {
      call.forward(run);
      return test::dot(call.out, call.dout);
    });
    // As without a mask: truncation and rounding are both about 1e-10.
    EXPECT_LE(test::max_abs_difference(call.dqkv, slope), 1e-9) << window;
  }
}

TEST(AttentionMask, OneThatHidesNothingChangesNoBit) {
  TestRun run;
  for (const HeadLayout& heads : {HeadLayout{4, 2, 64}, HeadLayout{1, 1, 150}}) {
    AttentionCall<float> plain(heads, 2, 200);
    plain.forward(run);
    plain.backward(run);
    for (const std::int64_t window : {0, 200, 201, 1 << 30}) {
      AttentionCall<float> masked(heads, 2, 200);
      masked.window = window;
      if (window != 200) masked.positions = in_order(2, 200);
      masked.forward(run);
      masked.backward(run);
      EXPECT_EQ(masked.out, plain.out) << window;
      EXPECT_EQ(masked.lse, plain.lse) << window;
      EXPECT_EQ(masked.dqkv, plain.dqkv) << window;
    }
  }
}

TEST(AttentionMask, ThreadCountChangesNoBit) {
  // One key-value head: with more threads than that, backward takes its other decomposition.
  const Masked cases[] = {{{3, 1, 48}, 1, 600, 100, false},
                          {{2, 1, 64}, 1, 600, 0, true},
                          {{2, 1, 160}, 1, 290, 33, true},
                          {{4, 4, 40}, 2, 150, 17, true}};
  for (const Masked& masked : cases) {
    auto one = masked.call<float>();
    TestRun serial(1);
    one.forward(serial);
    one.backward(serial);
    for (const int num_threads : {2, 3, 8}) {
      TestRun run(num_threads);
      auto many = masked.call<float>();
      many.forward(run);
      many.backward(run);
      EXPECT_EQ(many.out, one.out) << masked.name() << " threads " << num_threads;
      EXPECT_EQ(many.lse, one.lse) << masked.name() << " threads " << num_threads;
      EXPECT_EQ(many.dqkv, one.dqkv) << masked.name() << " threads " << num_threads;
    }
  }
}

// Finite but absurd rows outside the mask would show in the last bits if they weighed anything;
// NaN in tiles outside it would show even with a weight of zero.
TEST(AttentionMask, RowsOutsideItChangeNoBitAndTilesOutsideItAreNotRead) {
  TestRun run;
  constexpr std::int64_t kRows = 600;
  constexpr std::int64_t kFirst = 530;  // of the last document, in the middle of a tile
  const HeadLayout heads = {2, 1, 32};
  for (const bool with_window : {false, true}) {
    const auto run_with = [&](float value_before, std::int64_t end) {
      AttentionCall<float> call(heads, 1, kRows);
      if (with_window) {
        call.window = 31;
      } else {
        call.positions = in_order(1, kRows);
        std::iota(call.positions.values.begin() + kFirst, call.positions.values.end(), 0);
      }
      std::fill_n(call.qkv.values.begin(), end * heads.qkv_width(), value_before);
      call.forward(run);
      call.backward(run);
      return call;
    };
    const std::int64_t seen = with_window ? 30 : 0;
    const auto plain = run_with(0.5F, kFirst - seen);
    const auto absurd = run_with(1e3F, kFirst - seen);
    EXPECT_EQ(rows_of(absurd.out, kFirst, kRows), rows_of(plain.out, kFirst, kRows));
    EXPECT_EQ(rows_of(absurd.dqkv, kFirst, kRows), rows_of(plain.dqkv, kFirst, kRows));
    if (!with_window) continue;
    // Queries come in tiles of 64: that of row 512 on begins with key 512 - 30.
    const auto before = run_with(0.5F, 482);
    const auto poisoned = run_with(std::numeric_limits<float>::quiet_NaN(), 482);
    EXPECT_EQ(rows_of(poisoned.out, 512, kRows), rows_of(before.out, 512, kRows));
    EXPECT_EQ(rows_of(poisoned.dqkv, 512, kRows), rows_of(before.dqkv, 512, kRows));
  }
}

TEST(AttentionMask, CachedChunksWithAWindowMatchForward) {
  TestRun run;
  const std::vector<std::int64_t> chunkings[] = {
      std::vector<std::int64_t>(90, 1), {90}, {7, 1, 64, 2, 16}, {1, 89}};
  for (const std::int64_t window : {1, 3, 17, 64, 90, 200}) {
    for (const std::vector<std::int64_t>& chunks : chunkings) {
      const HeadLayout heads = {4, 2, 20};
      AttentionCall<double> exact(heads, 2, 90);
      exact.window = window;
      exact.forward(run);
      AttentionCall<float> steps(heads, 2, 90);
      steps.window = window;
      steps.cached(run, 100, chunks);
      EXPECT_LE(error(steps.out, exact.out), attention_tolerance(heads.head_dim, 90))
          << "window " << window << " in " << chunks.size() << " chunks";
      AttentionCall<double> steps_in_double(heads, 2, 90);
      steps_in_double.window = window;
      steps_in_double.cached(run, 100, chunks);
      EXPECT_EQ(steps_in_double.out, exact.out) << window;
    }
  }
}

TEST(AttentionMask, LongCachesWithAWindowAreMergedFromRangesWhateverTheThreads) {
  TestRun run;
  AttentionCall<double> exact({4, 2, 24}, 1, 1100);
  exact.window = 700;
  exact.forward(run);
  AttentionCall<float> one({4, 2, 24}, 1, 1100);
  for (const int num_threads : {1, 2, 3}) {
    TestRun threads(num_threads);
    AttentionCall<float> steps({4, 2, 24}, 1, 1100);
    steps.window = 700;
    steps.cached(threads, 1100, {255, 1, 1, 767, 1, 1, 73, 1});
    EXPECT_LE(error(steps.out, exact.out), attention_tolerance(24, 1100));
    if (num_threads == 1) one.out = steps.out;
    EXPECT_EQ(steps.out, one.out) << num_threads;
  }
}

TEST(AttentionMask, NamesTheFirstPositionThatCannotBe) {
  TestRun run;
  const std::pair<std::int64_t, std::int32_t> wrong[] = {{0, 1}, {4, -1}, {4, 3}, {5, 4}};
  for (const auto& [t, position] : wrong) {
    AttentionCall<float> call({1, 1, 8}, 2, 6);
    call.positions = in_order(2, 6);
    for (std::int64_t i = 8; i < 12; ++i) call.positions[i] = static_cast<std::int32_t>(i - 8);
    call.positions[6 + t] = position;
    try {
      call.forward(run);
      FAIL() << "position " << position << " at " << t << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      EXPECT_THAT(error.what(),
                  testing::HasSubstr(fmt::format(
                      "the position at row 1, place {} of the micro-batch is {}", t, position)));
    }
    EXPECT_THROW(call.backward(run), Error);
  }
}

TEST(AttentionMask, ACacheHoldsOneDocument) {
  TestRun run;
  const HeadLayout heads = {1, 1, 8};
  AttentionCall<float> call(heads, 1, 3);
  OwnedTensor<float> keys({1, 6, 8}), values({1, 6, 8});
  const auto attend = [&](const std::vector<std::int32_t>& at) {
    call.positions = in_order(1, 3);
    call.positions.values = at;
    attention_cached(run, heads, 1, call.mask(), 2, call.qkv, keys, values, call.out);
  };
  EXPECT_NO_THROW(attend({2, 3, 4}));
  EXPECT_THROW(attend({0, 1, 2}), Error);
  EXPECT_THROW(attend({2, 3, 0}), Error);
}

TEST(AttentionMask, OneThatDoesNotFitIsABug) {
  TestRun run;
  AttentionCall<float> call({1, 1, 8}, 2, 6);
  call.window = -1;
  EXPECT_THROW(call.forward(run), Error);
  call.window = 0;
  call.positions = in_order(2, 5);
  EXPECT_THROW(call.forward(run), Error);
  call.positions = in_order(3, 6);
  EXPECT_THROW(call.backward(run), Error);
  OwnedTensor<std::int64_t> wide({2, 6});
  EXPECT_THROW(
      attention_forward(run, call.heads, 1, {.positions = wide}, call.qkv, call.out, call.lse),
      Error);
}

}  // namespace
}  // namespace atl::ops
