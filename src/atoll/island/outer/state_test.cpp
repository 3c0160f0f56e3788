#include "atoll/island/outer/state.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::island {
namespace {

class OuterStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_.begin(0, std::vector<float>{1, 2, 3});
    state_.begin(1, std::vector<float>{4, 5});
  }
  const std::vector<float> delta_ = {0.5F, 0, -0.5F};
  std::unique_ptr<OuterOptimizer> optimizer_ =
      make_outer_optimizer({.kind = "nesterov", .lr = 0.5, .momentum = 0.5});
  OuterState state_{{3, 2}, *optimizer_};
};

TEST_F(OuterStateTest, AStepIsBesideTheStateUntilItIsSwappedIn) {
  const auto before = state_.current(0);
  const StateHash hash = state_.prepare(0, delta_);
  EXPECT_EQ(state_.current(0), before);
  EXPECT_EQ(state_.outer_step(), 0);
  ASSERT_TRUE(state_.swap(0, 0, hash));
  EXPECT_EQ(state_.outer_step(), 1);
  EXPECT_EQ(state_.current(0)->outer_step, 1);
  // v = 0.5 v + d; anchor -= 0.5 (d + 0.5 v).
  EXPECT_EQ(state_.current(0)->values, (std::vector<float>{0.625F, 2, 3.375F, 0.5F, 0, -0.5F}));
  EXPECT_EQ(before->values.front(), 1) << "who holds the old one still can";
  EXPECT_EQ(state_.hashes(), (std::vector<StateHash>{hash, state_.current(1)->hash}));
}

TEST_F(OuterStateTest, NothingElseIsSwappedIn) {
  const StateHash hash = state_.prepare(0, delta_);
  EXPECT_FALSE(state_.swap(0, 0, {hash.high, hash.low + 1}));
  EXPECT_FALSE(state_.swap(0, 1, hash));
  EXPECT_FALSE(state_.swap(1, 0, hash));
  EXPECT_TRUE(state_.swap(0, 0, hash));
  EXPECT_FALSE(state_.swap(0, 0, hash)) << "it is in already";
}

TEST_F(OuterStateTest, AnotherAttemptTakesThePlaceOfTheOneBefore) {
  const StateHash first = state_.prepare(0, delta_);
  const StateHash second = state_.prepare(0, std::vector<float>{1, 1, 1});
  EXPECT_FALSE(state_.swap(0, 0, first));
  EXPECT_TRUE(state_.swap(0, 0, second));
}

TEST(OuterStateStep, InPartsIsTheSameAsAtOnce) {
  std::vector<float> anchor(1000), mean(1000);
  for (std::size_t i = 0; i < anchor.size(); ++i) {
    anchor[i] = static_cast<float>(i) * 0.37F;
    mean[i] = 5.0F - static_cast<float>(i % 11);
  }
  // Without a vector of its own, with one, and with two.
  for (const OuterOptimizerOptions& options :
       {OuterOptimizerOptions{.kind = "sgd", .momentum = 0}, OuterOptimizerOptions{},
        OuterOptimizerOptions{.kind = "adam"}}) {
    const auto optimizer = make_outer_optimizer(options);
    OuterState state(std::vector<std::size_t>{anchor.size()}, *optimizer);
    state.begin(0, anchor);
    for (int k = 0; k < 3; ++k) {
      const StateHash whole = state.prepare(0, mean);
      const auto step = state.begin_step(0);
      const std::span<const float> all(mean);
      for (const std::size_t begin : {700U, 0U, 300U}) {
        step->add(begin, all.subspan(begin, begin == 300 ? 400 : 300));
      }
      EXPECT_EQ(state.prepare(*step), whole) << options.kind << " " << k;
      ASSERT_TRUE(state.swap(k, 0, whole));
    }
  }
}

TEST_F(OuterStateTest, WhatWasFetchedGoesOnLikeTheOriginal) {
  ASSERT_TRUE(state_.swap(0, 0, state_.prepare(0, delta_)));
  OuterState other({3, 2}, *optimizer_);
  EXPECT_EQ(other.outer_step(), -1);
  for (int f = 0; f < 2; ++f) {
    const auto from = state_.current(f);
    EXPECT_EQ(other.replace(f, from->outer_step, from->values), from->hash);
  }
  other.set_outer_step(1);
  const std::vector<float> next = {1, 2};
  EXPECT_EQ(other.prepare(1, next), state_.prepare(1, next));
}

// Ranks with a part each make the state that one rank makes, and its hash.
TEST(OuterStateParts, AddUpToTheWhole) {
  constexpr std::int64_t kElements = 3 * 4096 + 17;
  constexpr std::int64_t kCut = 2 * 4096;
  std::vector<float> anchor(kElements), mean(kElements);
  for (std::size_t i = 0; i < anchor.size(); ++i) {
    anchor[i] = static_cast<float>(i) * 0.37F;
    mean[i] = 5.0F - static_cast<float>(i % 11);
  }
  const auto optimizer = make_outer_optimizer({.kind = "adam"});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return std::vector<StatePart>{StatePart(kElements, {begin, end}, 3)};
  };
  OuterState whole(part(0, kElements), *optimizer);
  OuterState first(part(0, kCut), *optimizer), second(part(kCut, kElements), *optimizer);
  const std::span<const float> all(anchor), means(mean);
  whole.begin(0, all);
  const StateHash hash = whole.current(0)->hash;
  StateHash sum;
  const auto add = [&](const StateHash& own) {
    sum = sum + own;
    return hash;
  };
  first.begin(0, all.first(kCut), add);
  second.begin(0, all.subspan(kCut), add);
  EXPECT_EQ(sum, hash);

  const StateHash next = whole.prepare(0, mean);
  const auto step = first.begin_step(0), other = second.begin_step(0);
  step->add(0, means.first(kCut));
  other->add(0, means.subspan(kCut));
  EXPECT_EQ(first.prepare(*step) + second.prepare(*other), next);
  EXPECT_FALSE(first.swap(0, 0, next)) << "not all ranks have prepared";
  for (OuterState* state : {&first, &second}) {
    state->seal(next);
    ASSERT_TRUE(state->swap(0, 0, next));
    EXPECT_EQ(state->current(0)->hash, next);
  }
  ASSERT_TRUE(whole.swap(0, 0, next));

  // As it is sent: chunk by chunk, and back.
  const StatePart everything = whole.part(0);
  std::vector<std::byte> sent(everything.bytes());
  everything.read(whole.current(0)->values, 0, sent);
  EXPECT_EQ(hash_of(sent), next);
  for (const OuterState* state : {&first, &second}) {
    const StatePart& own = state->part(0);
    std::vector<float> values(own.size());
    for (std::uint64_t c = own.first_chunk(); c < own.end_chunk(); ++c) {
      const std::uint64_t offset = c * own.chunk_bytes();
      own.write(values, offset,
                std::span(sent).subspan(
                    offset, std::min<std::uint64_t>(own.chunk_bytes(), sent.size() - offset)));
    }
    EXPECT_EQ(values, state->current(0)->values);
  }
  EXPECT_EQ(first.part(0).end_chunk(), second.part(0).first_chunk());
}

}  // namespace
}  // namespace atl::island
