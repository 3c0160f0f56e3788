// Attention to keys and values in blocks: against the whole sequence in double, and bit for bit
// whatever else the pass holds and in which pieces a sequence comes.

#include "atoll/ops/attention/attention_paged.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/ops/attention/attention_testing.h"

namespace atl::ops {
namespace {

using test::attention_tolerance;
using test::AttentionCall;
using test::error;
using test::OwnedTensor;
using test::TestRun;

constexpr std::int64_t kBlock = 16;

struct Case {
  HeadLayout heads;
  std::int64_t T;
  std::int64_t window = 0;
  double softcap = 0;
};
const Case kCases[] = {{{1, 1, 16}, 1},          {{4, 2, 64}, 150},    {{6, 2, 24}, 131},
                       {{2, 2, 80}, 130, 20},    {{8, 1, 128}, 70},    {{2, 1, 64}, 260, 130},
                       {{3, 1, 17}, 90, 0, 0.5}, {{1, 1, 256}, 75, 40}};

/// A cache whose blocks a sequence has in a scattered order.
struct Cache {
  Cache(const HeadLayout& heads, std::int64_t positions, std::int32_t stride)
      : keys({1, 8 * kBlock * ((positions + kBlock - 1) / kBlock), heads.kv_width()},
             std::nanf("")),
        values(keys) {
    const auto needed = static_cast<std::int32_t>((positions + kBlock - 1) / kBlock);
    for (std::int32_t i = 0; i < needed; ++i) {
      blocks.push_back((i * stride + 3) % (8 * needed));
    }
  }
  OwnedTensor<float> keys, values;
  std::vector<std::int32_t> blocks;
};

OwnedTensor<float> rows_of(const OwnedTensor<float>& whole, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = whole.shape.dim(2);
  OwnedTensor<float> rows({1, end - begin, width});
  std::copy_n(whole.values.begin() + begin * width, (end - begin) * width, rows.values.begin());
  return rows;
}

std::int32_t unused_block(const std::vector<std::int32_t>& used) {
  std::int32_t block = 0;
  while (std::ranges::find(used, block) != used.end()) ++block;
  return block;
}

// What a sequence gets when it comes in pieces of these lengths, each beside a row of another
// sequence.
OwnedTensor<float> in_pieces(Run& run, AttentionCall<float>& call, std::int64_t T,
                             const std::vector<std::int64_t>& lengths) {
  Cache cache(call.heads, T, 5);
  OwnedTensor<float> out({1, T, call.heads.query_width()});
  std::int64_t at = 0;
  for (std::size_t i = 0; at < T; ++i) {
    const std::int64_t rows = std::min(lengths[i % lengths.size()], T - at);
    OwnedTensor<float> qkv({1, rows + 3, call.heads.qkv_width()});
    const OwnedTensor<float> mine = rows_of(call.qkv, at, at + rows);
    std::copy(mine.values.begin(), mine.values.end(),
              qkv.values.begin() + 2 * call.heads.qkv_width());
    OwnedTensor<float> attended({1, rows + 3, call.heads.query_width()}, std::nanf(""));
    // One row of another sequence, one of none, then this one's, and one of none.
    const std::int32_t spare[] = {unused_block(cache.blocks)};
    const std::vector<PagedRows> given = {{0, 1, 0, spare}, {2, rows, at, cache.blocks}};
    attention_paged(run, call.heads, call.scores(), call.window, given, kBlock, qkv, cache.keys,
                    cache.values, attended);
    EXPECT_EQ(attended[call.heads.query_width()], 0) << "a row of no sequence";
    std::copy_n(attended.values.begin() + 2 * call.heads.query_width(),
                rows * call.heads.query_width(),
                out.values.begin() + at * call.heads.query_width());
    at += rows;
  }
  return out;
}

class AttentionPagedTargets : public test::EachTarget {};

TEST_P(AttentionPagedTargets, MatchesTheWholeSequenceInDouble) {
  TestRun run;
  for (const Case& c : kCases) {
    AttentionCall<float> call(c.heads, 1, c.T);
    AttentionCall<double> exact(c.heads, 1, c.T);
    call.window = exact.window = c.window;
    call.softcap = exact.softcap = c.softcap;
    exact.forward(run);
    const double cap =
        c.softcap == 0
            ? 0
            : 0x1p-23 * (4 + 0.77 / c.softcap * std::sqrt(static_cast<double>(c.heads.head_dim)));
    const OwnedTensor<float> out = in_pieces(run, call, c.T, {c.T});
    EXPECT_LE(error(out, exact.out), attention_tolerance(c.heads.head_dim, c.T) + cap)
        << c.heads.num_heads << " heads of " << c.heads.head_dim << ", T " << c.T;
  }
}

TEST_P(AttentionPagedTargets, BitsDoNotDependOnPieces) {
  TestRun run;
  TestRun alone(1);
  for (const Case& c : kCases) {
    AttentionCall<float> call(c.heads, 1, c.T);
    call.window = c.window;
    call.softcap = c.softcap;
    const OwnedTensor<float> whole = in_pieces(run, call, c.T, {c.T});
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{1}, {7, 1, 30}, {64}, {17}}) {
      EXPECT_EQ(in_pieces(run, call, c.T, lengths), whole)
          << c.heads.head_dim << " wide, T " << c.T << ", pieces of " << lengths.front();
    }
    EXPECT_EQ(in_pieces(alone, call, c.T, {13}), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionPagedTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(AttentionPaged, RefusesRowsThatOverlapAndBlocksThatAreNotThere) {
  TestRun run;
  const HeadLayout heads = {1, 1, 16};
  AttentionCall<float> call(heads, 1, 4);
  Cache cache(heads, 32, 1);
  const std::int32_t far[] = {99};
  const auto attend = [&](std::initializer_list<PagedRows> rows) {
    attention_paged(run, heads, 1.0, 0, std::vector<PagedRows>(rows), kBlock, call.qkv, cache.keys,
                    cache.values, call.out);
  };
  EXPECT_THROW(attend({{0, 3, 0, cache.blocks}, {2, 1, 0, cache.blocks}}), Error);
  EXPECT_THROW(attend({{0, 5, 0, cache.blocks}}), Error);
  EXPECT_THROW(attend({{0, 1, 0, far}}), Error);
  EXPECT_THROW(attend({{0, 1, 40, cache.blocks}}), Error);
  EXPECT_NO_THROW(attend({{0, 4, 28, cache.blocks}}));
}

}  // namespace
}  // namespace atl::ops
