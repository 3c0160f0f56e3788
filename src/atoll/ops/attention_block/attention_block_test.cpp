// Attention in blocks, as ranks see it that have two stretches of each sequence and get the keys
// and values of all others: together it is attention_forward and attention_backward.

#include "atoll/ops/attention_block/attention_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
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

// Sequences cut at `cuts` into 2 P stretches, of which rank r has numbers r and 2 P - 1 - r.
struct Cut {
  HeadLayout heads;
  std::int64_t B;
  std::vector<std::int64_t> cuts;  // from 0 to T
  std::int64_t window = 0;
  bool documents = false;
  double softcap = 0;

  std::int64_t length() const { return cuts.back(); }
  std::size_t num_ranks() const { return (cuts.size() - 1) / 2; }
  std::string name() const {
    return fmt::format("B {} cuts {} heads {}/{} of {}, window {}{}", B, fmt::join(cuts, " "),
                       heads.num_heads, heads.num_kv_heads, heads.head_dim, window,
                       documents ? ", documents" : "");
  }
  template <typename T>
  AttentionCall<T> call() const {
    AttentionCall<T> whole(heads, B, length());
    whole.window = window;
    whole.softcap = softcap;
    if (!documents) return whole;
    const RngStream stream(11, RngPurpose::kSynthetic);
    whole.positions = OwnedTensor<std::int32_t>({B, length()});
    for (std::int64_t i = 0; i < B * length(); ++i) {
      const bool begins = i % length() == 0 || stream.word(static_cast<std::uint64_t>(i)) % 40 == 0;
      whole.positions[i] = begins ? 0 : whole.positions[i - 1] + 1;
    }
    return whole;
  }
};

struct Stretch {
  std::int64_t row, first, count;  // of the rank's rows, of the sequence
};

std::vector<Stretch> stretches_of(const Cut& cut, std::size_t rank) {
  std::vector<Stretch> result;
  std::int64_t row = 0;
  for (const std::size_t number : {rank, 2 * cut.num_ranks() - 1 - rank}) {
    const std::int64_t first = cut.cuts[number];
    result.push_back({row, first, cut.cuts[number + 1] - first});
    row += result.back().count;
  }
  return result;
}

// Between whole sequences (B, T, W) and a rank's rows, elements [column, column + width) of each.
template <typename T>
void copy_rows(const Cut& cut, std::size_t rank, OwnedTensor<T>& whole, std::int64_t column,
               OwnedTensor<T>& mine, bool into_mine) {
  const std::int64_t width = mine.shape.dim(2), all = whole.shape.dim(2);
  for (std::int64_t b = 0; b < cut.B; ++b) {
    for (const Stretch& s : stretches_of(cut, rank)) {
      for (std::int64_t i = 0; i < s.count; ++i) {
        T* there = &whole[(b * cut.length() + s.first + i) * all + column];
        T* here = &mine[(b * mine.shape.dim(1) + s.row + i) * width];
        into_mine ? std::copy_n(there, width, here) : std::copy_n(here, width, there);
      }
    }
  }
}

// What a rank has: rows of its own, and the sums of its results in the compute dtype.
template <typename T>
struct RankRows {
  using A = Compute<T>;
  RankRows(const Cut& cut, AttentionCall<T>& whole, std::size_t rank)
      : stretches(stretches_of(cut, rank)), rows(stretches[0].count + stretches[1].count) {
    const HeadLayout& heads = cut.heads;
    qkv = OwnedTensor<T>({cut.B, rows, heads.qkv_width()});
    kv = OwnedTensor<T>({cut.B, rows, 2 * heads.kv_width()});
    dout = out = OwnedTensor<T>({cut.B, rows, heads.query_width()});
    attended = OwnedTensor<A>(out.shape, std::numeric_limits<A>::quiet_NaN());
    lse = OwnedTensor<A>({cut.B, heads.num_heads, rows}, std::numeric_limits<A>::quiet_NaN());
    dqkv = OwnedTensor<A>(qkv.shape);
    dkv = OwnedTensor<A>(kv.shape);
    copy_rows(cut, rank, whole.qkv, 0, qkv, true);
    copy_rows(cut, rank, whole.qkv, heads.query_width(), kv, true);
    copy_rows(cut, rank, whole.dout, 0, dout, true);
    if (whole.positions.size() == 0) return;
    positions = OwnedTensor<std::int32_t>({cut.B, rows});
    OwnedTensor<std::int32_t> all({cut.B, cut.length(), 1}), mine({cut.B, rows, 1});
    all.values = whole.positions.values;
    copy_rows(cut, rank, all, 0, mine, true);
    positions.values = mine.values;
  }
  AttentionMask mask(std::int64_t window) {
    return {window, positions.size() == 0 ? Tensor() : positions.view()};
  }

  std::vector<Stretch> stretches;
  std::int64_t rows;
  OwnedTensor<T> qkv, kv, dout, out;
  OwnedTensor<A> attended, lse, dqkv, dkv;
  OwnedTensor<std::int32_t> positions;
};

// fn(block) for the blocks of a rank's queries with another's keys that can be seen.
template <typename Fn>
void for_blocks(const std::vector<Stretch>& mine, const std::vector<Stretch>& theirs, Fn fn) {
  for (const Stretch& q : mine) {
    for (const Stretch& k : theirs) {
      if (k.first <= q.first) fn(AttentionBlock{q.row, q.first, q.count, k.row, k.first, k.count});
    }
  }
}

// All ranks' blocks, in the order of a ring. Results as those of one call.
template <typename T>
AttentionCall<Compute<T>> in_blocks(TestRun& run, const Cut& cut) {
  using A = Compute<T>;
  AttentionCall<T> whole = cut.call<T>();
  std::vector<RankRows<T>> ranks;
  const std::size_t P = cut.num_ranks();
  for (std::size_t r = 0; r < P; ++r) ranks.emplace_back(cut, whole, r);
  AttentionCall<A> result(cut.heads, cut.B, cut.length());
  result.out = OwnedTensor<A>(result.out.shape);
  result.dqkv = OwnedTensor<A>(result.dqkv.shape);
  for (std::size_t r = 0; r < P; ++r) {
    RankRows<T>& mine = ranks[r];
    for (std::size_t step = 0; step < P; ++step) {
      RankRows<T>& theirs = ranks[(r + P - step) % P];
      std::int64_t begun = -1;  // the last row whose queries have results
      for_blocks(mine.stretches, theirs.stretches, [&](const AttentionBlock& block) {
        const bool is_first = step == 0 && block.query_row > begun;
        begun = block.query_row;
        attention_block_forward(run, cut.heads, whole.scores(), mine.mask(cut.window), block,
                                is_first, mine.qkv, theirs.kv, mine.attended, mine.lse);
      });
    }
    for (std::int64_t i = 0; i < mine.out.size(); ++i) mine.out[i] = narrow<T>(mine.attended[i]);
    for (std::size_t step = 0; step < P; ++step) {
      RankRows<T>& theirs = ranks[(r + P - step) % P];
      for_blocks(mine.stretches, theirs.stretches, [&](const AttentionBlock& block) {
        attention_block_backward(run, cut.heads, whole.scores(), mine.mask(cut.window), block,
                                 mine.qkv, theirs.kv, mine.out, mine.lse, mine.dout, mine.dqkv,
                                 theirs.dkv);
      });
    }
  }
  for (std::size_t r = 0; r < P; ++r) {
    RankRows<T>& mine = ranks[r];
    copy_rows(cut, r, result.out, 0, mine.attended, false);
    copy_rows(cut, r, result.dqkv, 0, mine.dqkv, false);
    copy_rows(cut, r, result.dqkv, cut.heads.query_width(), mine.dkv, false);
    // (B, heads, rows) as rows of one element.
    for (std::int64_t pair = 0; pair < cut.B * cut.heads.num_heads; ++pair) {
      for (const Stretch& s : mine.stretches) {
        std::copy_n(&mine.lse[pair * mine.rows + s.row], s.count,
                    &result.lse[pair * cut.length() + s.first]);
      }
    }
  }
  return result;
}

std::vector<Cut> all_cuts() {
  const std::vector<std::int64_t> even = {0, 32, 64, 96, 128};
  const std::vector<std::int64_t> odd = {0, 7, 80, 147, 149, 150, 215};
  const std::vector<std::int64_t> wide = {0, 130, 261, 300, 420};
  std::vector<Cut> cuts;
  for (const HeadLayout& heads :
       {HeadLayout{2, 1, 6}, HeadLayout{4, 2, 32}, HeadLayout{3, 1, 64}, HeadLayout{1, 1, 160}}) {
    for (const std::int64_t window : {0, 1, 20, 90}) {
      for (const bool documents : {false, true}) {
        cuts.push_back({heads, 1, heads.head_dim == 32 ? even : odd, window, documents});
      }
    }
  }
  cuts.push_back({{4, 2, 24}, 3, odd, 0, true});  // each sequence has its own documents
  cuts.push_back({{2, 1, 64}, 2, wide, 0, false});
  cuts.push_back({{2, 1, 64}, 1, wide, 140, true});
  cuts.push_back({{2, 2, 16}, 1, {0, 1, 2}, 0, false});
  cuts.push_back({{4, 2, 32}, 1, odd, 20, true, 0.5});
  cuts.push_back({{2, 1, 64}, 2, wide, 0, false, 0.5});
  return cuts;
}

TEST(AttentionBlock, ReferenceOfAllBlocksIsThatOfWholeSequences) {
  TestRun run;
  for (const Cut& cut : all_cuts()) {
    auto whole = cut.call<double>();
    whole.forward(run);
    whole.backward(run);
    const auto blocks = in_blocks<double>(run, cut);
    EXPECT_LE(error(blocks.out, whole.out), 1e-13) << cut.name();
    EXPECT_LE(error(blocks.lse, whole.lse), 1e-13) << cut.name();
    EXPECT_LE(error(blocks.dqkv, whole.dqkv), 1e-13) << cut.name();
  }
}

TEST(AttentionBlock, AllBlocksMatchTheDoubleReferenceOnEveryTarget) {
  TestRun run;
  for (const Cut& cut : all_cuts()) {
    auto exact = cut.call<double>();
    exact.forward(run);
    exact.backward(run);
    const std::int64_t group = cut.heads.num_heads / cut.heads.num_kv_heads;
    // A cap adds errors of tanh and of slopes: attention_softcap_test.cpp.
    const double of_cap = cut.softcap == 0 ? 0 : 0x1p-23 * (4 + 1.6 * std::sqrt(64.0));
    const double bound = attention_tolerance(cut.heads.head_dim, cut.length() * group) + of_cap;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      use_target(target);
      const auto fast = in_blocks<float>(run, cut);
      EXPECT_LE(error(fast.out, exact.out), bound) << cut.name();
      EXPECT_LE(error(fast.lse, exact.lse), bound) << cut.name();
      EXPECT_LE(error(fast.dqkv, exact.dqkv), bound) << cut.name();
    }
    use_target(0);
  }
}

TEST(AttentionBlock, ThreadCountChangesNoBit) {
  const Cut cuts[] = {{{3, 1, 48}, 1, {0, 150, 301, 450, 600}, 100, false},
                      {{2, 1, 160}, 1, {0, 70, 150, 290, 291}, 0, true},
                      {{4, 4, 40}, 2, {0, 30, 60, 90, 120}, 17, true}};
  TestRun serial(1);
  for (const Cut& cut : cuts) {
    const auto one = in_blocks<float>(serial, cut);
    for (const int num_threads : {2, 3, 8}) {
      TestRun run(num_threads);
      const auto many = in_blocks<float>(run, cut);
      EXPECT_EQ(many.out, one.out) << cut.name() << " threads " << num_threads;
      EXPECT_EQ(many.lse, one.lse) << cut.name() << " threads " << num_threads;
      EXPECT_EQ(many.dqkv, one.dqkv) << cut.name() << " threads " << num_threads;
    }
  }
}

// bf16 is widened when it is loaded, and sums stay in f32: forward has the bits of f32 with the
// same numbers. Backward reads attended values that were rounded.
TEST(AttentionBlock, Bf16HasTheSumsOfF32) {
  TestRun run;
  const HeadLayout heads = {4, 2, 24};
  OwnedTensor<Bf16> qkv = test::random_tensor<Bf16>({2, 70, heads.qkv_width()}, 1);
  OwnedTensor<Bf16> kv = test::random_tensor<Bf16>({2, 50, 2 * heads.kv_width()}, 2);
  OwnedTensor<Bf16> dout = test::random_tensor<Bf16>({2, 70, heads.query_width()}, 3);
  OwnedTensor<float> wide_qkv = qkv.as<float>(), wide_kv = kv.as<float>();
  OwnedTensor<float> wide_dout = dout.as<float>();
  OwnedTensor<float> sums({2, 70, heads.query_width()}), lse({2, 4, 70});
  OwnedTensor<float> wide_sums = sums, wide_lse = lse;
  const AttentionBlock own = {0, 50, 70, 0, 50, 50}, earlier = {0, 50, 70, 0, 0, 50};
  for (const AttentionBlock& block : {own, earlier}) {
    attention_block_forward(run, heads, 0.2, {}, block, block.first_key > 0, qkv, kv, sums, lse);
    attention_block_forward(run, heads, 0.2, {}, block, block.first_key > 0, wide_qkv, wide_kv,
                            wide_sums, wide_lse);
  }
  EXPECT_EQ(sums, wide_sums);
  EXPECT_EQ(lse, wide_lse);
  OwnedTensor<Bf16> out = sums.as<Bf16>();
  OwnedTensor<float> wide_out = out.as<float>();
  OwnedTensor<float> dqkv(qkv.shape), dkv(kv.shape), wide_dqkv = dqkv, wide_dkv = dkv;
  attention_block_backward(run, heads, 0.2, {}, earlier, qkv, kv, out, lse, dout, dqkv, dkv);
  attention_block_backward(run, heads, 0.2, {}, earlier, wide_qkv, wide_kv, wide_out, lse,
                           wide_dout, wide_dqkv, wide_dkv);
  EXPECT_EQ(dqkv, wide_dqkv);
  EXPECT_EQ(dkv, wide_dkv);
}

TEST(AttentionBlock, QueriesThatSeeNoKeyOfABlockKeepWhatTheyHave) {
  TestRun run;
  const HeadLayout heads = {2, 1, 16};
  for (const std::int64_t head_dim : {16, 260}) {  // tiles, reference
    const HeadLayout layout = {heads.num_heads, heads.num_kv_heads, head_dim};
    OwnedTensor<float> qkv = test::random_tensor<float>({1, 60, layout.qkv_width()}, 1);
    OwnedTensor<float> kv = test::random_tensor<float>({1, 60, 2 * layout.kv_width()}, 2);
    OwnedTensor<float> out({1, 60, layout.query_width()}, std::nanf("")), lse({1, 2, 60});
    const AttentionBlock block = {0, 60, 60, 0, 0, 60};
    // Query i is token 60 + i and sees from token 41 + i on: the first 19 see some of these keys.
    attention_block_forward(run, layout, 0.3, {.window = 20}, block, true, qkv, kv, out, lse);
    for (std::int64_t i = 0; i < 60; ++i) {
      EXPECT_EQ(std::isinf(lse[i]), i >= 19) << i;
      const float first = out[i * layout.query_width()];
      EXPECT_EQ(first == 0, i >= 19) << i;
    }
    const OwnedTensor<float> before = out, lse_before = lse;
    attention_block_forward(run, layout, 0.3, {.window = 1}, block, false, qkv, kv, out, lse);
    EXPECT_EQ(out, before);
    EXPECT_EQ(lse, lse_before);
  }
}

TEST(AttentionBlock, PairsAreCounted) {
  for (const std::int64_t window : {0, 1, 5, 30}) {
    for (const AttentionBlock& block :
         {AttentionBlock{0, 0, 9, 0, 0, 9}, AttentionBlock{0, 12, 7, 0, 4, 8},
          AttentionBlock{3, 10, 7, 0, 7, 8}, AttentionBlock{0, 40, 5, 0, 3, 6}}) {
      std::int64_t pairs = 0;
      for (std::int64_t q = block.first_query; q < block.first_query + block.num_queries; ++q) {
        for (std::int64_t k = block.first_key; k < block.first_key + block.num_keys; ++k) {
          pairs += k <= q && (window == 0 || q - k < window) ? 1 : 0;
        }
      }
      EXPECT_EQ(visible_pairs(block, window), pairs) << window;
    }
  }
}

TEST(AttentionBlock, WhatCannotBeIsRefused) {
  TestRun run;
  const HeadLayout heads = {2, 1, 4};
  OwnedTensor<float> qkv({1, 6, heads.qkv_width()}), kv({1, 6, 2 * heads.kv_width()});
  OwnedTensor<float> out({1, 6, heads.query_width()}), lse({1, 2, 6});
  const auto forward = [&](const AttentionBlock& block, const AttentionMask& mask) {
    attention_block_forward(run, heads, 1, mask, block, true, qkv, kv, out, lse);
  };
  EXPECT_THROW(forward({0, 0, 7, 0, 0, 6}, {}), Error);
  EXPECT_THROW(forward({0, 0, 6, 1, 0, 6}, {}), Error);
  EXPECT_THROW(forward({0, 0, 6, 0, 1, 6}, {}), Error);  // keys that no query can see
  OwnedTensor<std::int32_t> positions({1, 6});
  positions.values = {8, 9, 0, 1, 2, 3};
  EXPECT_NO_THROW(forward({0, 8, 6, 0, 0, 6}, {.positions = positions}));
  EXPECT_THROW(forward({0, 7, 6, 0, 0, 6}, {.positions = positions}), Error);
  positions.values = {8, 9, 0, 1, 3, 4};
  EXPECT_THROW(forward({0, 8, 6, 0, 0, 6}, {.positions = positions}), Error);
}

}  // namespace
}  // namespace atl::ops
