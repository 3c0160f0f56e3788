#include "atoll/serve/batch/step_shares.h"

#include <gtest/gtest.h>

namespace atl::serve {
namespace {

using Shares = std::vector<std::int64_t>;

TEST(StepShares, AnswersComeFirstAndPromptsShareTheRest) {
  EXPECT_EQ(step_shares(Shares{1, 100, 1, 100}, {true, false, true, false}, {64, 32}),
            (Shares{1, 16, 1, 16}));
  // Both bounds: of all rows, and of those of prompts.
  EXPECT_EQ(step_shares(Shares{1, 100}, {true, false}, {8, 32}), (Shares{1, 7}));
}

TEST(StepShares, PromptsAloneTakeTheWholeStep) {
  EXPECT_EQ(step_shares(Shares{100, 500}, {false, false}, {128, 32}), (Shares{64, 64}));
  EXPECT_EQ(step_shares(Shares{500}, {false}, {128, 32}), (Shares{128}));
}

TEST(StepShares, WhatAShortPromptLeavesIsForTheOthers) {
  EXPECT_EQ(step_shares(Shares{500, 3, 500}, {false, false, false}, {128, 32}),
            (Shares{63, 3, 62}));
}

TEST(StepShares, MoreAnswersThanRowsTakeTurnsByOrder) {
  EXPECT_EQ(step_shares(Shares{1, 1, 1}, {true, true, true}, {2, 32}), (Shares{1, 1, 0}));
  EXPECT_EQ(step_shares(Shares{}, {}, {2, 32}), Shares{});
}

}  // namespace
}  // namespace atl::serve
