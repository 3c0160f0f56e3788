#include "atoll/serve/batch/ngram_draft.h"

#include <gtest/gtest.h>

namespace atl::serve {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(NgramDraft, GuessesWhatFollowedTheSameTokensLast) {
  NgramDraft draft;
  EXPECT_EQ(draft.guess(Tokens{1, 2, 3, 4, 5, 6, 1, 2, 3}, 9), (Tokens{4, 5}));
  NgramDraft other;
  // Of two places the later one.
  EXPECT_EQ(other.guess(Tokens{1, 2, 3, 4, 1, 2, 3, 9, 8, 1, 2, 3}, 9), (Tokens{9, 8}));
  EXPECT_EQ(other.guess(Tokens{1, 2, 3, 4, 1, 2, 3, 9, 8, 1, 2, 3, 7}, 9), Tokens{});
}

TEST(NgramDraft, NothingForWhatIsNewOrShort) {
  NgramDraft draft;
  EXPECT_EQ(draft.guess(Tokens{1, 2, 3}, 9), Tokens{});
  EXPECT_EQ(draft.guess(Tokens{1, 2, 3, 4, 5, 6}, 9), Tokens{});
  EXPECT_EQ(draft.guess(Tokens{1, 2, 3, 4, 5, 6, 1, 2, 3}, 0), Tokens{});
}

TEST(NgramDraft, RightGuessesMakeLongerOnesAndWrongOnesPauses) {
  NgramDraft draft;
  Tokens text;
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (std::int32_t i = 0; i < 20; ++i) text.push_back(i);
  }
  ASSERT_EQ(draft.guess(text, 9).size(), 2U);
  draft.learn(2, 2);
  ASSERT_EQ(draft.guess(text, 9).size(), 4U);
  draft.learn(4, 4);
  ASSERT_EQ(draft.guess(text, 9).size(), NgramDraft::kMost);
  ASSERT_EQ(draft.guess(text, 3).size(), 3U);
  draft.learn(7, 0);
  EXPECT_TRUE(draft.guess(text, 9).empty());
  EXPECT_EQ(draft.guess(text, 9).size(), 1U);
  draft.learn(1, 0);
  EXPECT_TRUE(draft.guess(text, 9).empty());
  EXPECT_TRUE(draft.guess(text, 9).empty());
  EXPECT_EQ(draft.guess(text, 9).size(), 1U);
}

}  // namespace
}  // namespace atl::serve
