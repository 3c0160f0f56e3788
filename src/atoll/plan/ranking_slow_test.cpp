#include "atoll/plan/ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "atoll/base/error.h"
#include "atoll/plan/table.h"
#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"

namespace atl::plan {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const Question& question) {
  try {
    rank_layouts(question);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Ranking, HasEachLayoutOnce) {
  Question question = small_question(4);
  question.rows = 1000;
  const Ranking ranking = rank_layouts(question);
  EXPECT_EQ(ranking.rows.size() + ranking.refused.size() + ranking.slower, ranking.all);
  EXPECT_EQ(ranking.slower, 0U);
  EXPECT_FALSE(ranking.rows.empty());
}

TEST(Ranking, OfFewRowsIsTheBeginningOfThatOfMany) {
  Question question = small_question(4);
  question.rows = 1000;
  const Ranking many = rank_layouts(question);
  question.rows = 5;
  const Ranking few = rank_layouts(question);
  ASSERT_EQ(few.rows.size(), 5U);
  for (std::size_t i = 0; i < few.rows.size(); ++i) {
    EXPECT_EQ(few.rows[i].layout, many.rows[i].layout) << i;
  }
  for (std::size_t i = 1; i < many.rows.size(); ++i) {
    EXPECT_LE(many.rows[i - 1].estimate.step_seconds, 1.02 * many.rows[i].estimate.step_seconds);
  }
}

TEST(Ranking, IsTheSameEachTime) {
  const Question question = small_question(4);
  EXPECT_EQ(ranking_json(rank_layouts(question), question),
            ranking_json(rank_layouts(question), question));
}

TEST(Ranking, RefusesWithTheWordsOfARun) {
  Question question = small_question(4);
  question.rows = 1000;
  const Ranking ranking = rank_layouts(question);
  ASSERT_FALSE(ranking.refused.empty());
  Variants variants("", question.overrides);
  for (const Refusal& one : ranking.refused) {
    try {
      const train::TrainState state(
          train::state_options(variants.with(one.layout), question.vocab_size, -1, 4, 0));
      ADD_FAILURE() << describe(one.layout) << " works: " << one.why;
    } catch (const Error& error) {
      EXPECT_EQ(one.why, error.what()) << describe(one.layout);
    }
  }
}

TEST(Ranking, NamesTheNearestLayoutForOneThatCannotBe) {
  EXPECT_THAT(refusal(small_question(4, {"--parallel.tp=3"})),
              AllOf(HasSubstr("parallel.tp (3"), HasSubstr("the nearest layout of 4 ranks")));
  EXPECT_THAT(refusal(small_question(8, {"--parallel.pp=8"})),
              AllOf(HasSubstr("needs as many stages"), HasSubstr("the nearest layout of 8 ranks")));
  EXPECT_THAT(refusal(small_question(8, {"--parallel.tp=8"})),
              HasSubstr("the nearest layout of 8 ranks"));
  EXPECT_THAT(refusal(small_question(4, {"--parallel.pp=4", "--train.micro_batch=4"})),
              AllOf(HasSubstr("micro-batches"), HasSubstr("the nearest layout of 4 ranks")));
}

TEST(Ranking, RefusesStateInAFile) {
  EXPECT_THAT(refusal(small_question(2, {"--offload.optimizer=file"})),
              AllOf(HasSubstr("offload.optimizer"), HasSubstr("atoll plan -n")));
}

TEST(Ranking, NamesTheSmallestLayoutWhereNoneFits) {
  Question question = small_question(4);
  question.memory_bytes = 1 << 12;
  EXPECT_THAT(refusal(question),
              AllOf(HasSubstr("no layout of 4 ranks fits into 4.0 KiB"), HasSubstr("which takes")));
}

TEST(Ranking, FindsWhatFitsWhereTheFastestDoNot) {
  Question question = small_question(4);
  question.rows = 1000;
  std::size_t least = SIZE_MAX;
  for (const Row& row : rank_layouts(question).rows) least = std::min(least, row.memory.bytes);
  question.memory_bytes = least;
  question.most_planned = 100;
  const Ranking ranking = rank_layouts(question);
  ASSERT_FALSE(ranking.rows.empty());
  EXPECT_LE(ranking.rows.front().memory.bytes, least);
}

TEST(Ranking, TimesModelsWithExpertsInAnyMix) {
  Question question = small_question(
      4, {"--model.family=mixtral", "--model.num_experts=4", "--model.num_experts_per_tok=2"});
  question.rows = 1000;
  const Ranking ranking = rank_layouts(question);
  ASSERT_FALSE(ranking.rows.empty());
  std::set<int> experts, tensor;
  std::set<std::pair<int, int>> beside;  // of layouts that share experts
  for (const Row& row : ranking.rows) {
    if (row.layout.experts > 1) beside.insert({row.layout.tensor, row.layout.context});
    experts.insert(row.layout.experts);
    tensor.insert(row.layout.tensor);
    EXPECT_EQ(row.estimate.sent.experts > 0, row.layout.experts > 1) << describe(row.layout);
  }
  EXPECT_EQ(experts, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(tensor, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(beside, (std::set<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}}));
}

TEST(Ranking, OfManyRanksComesToAnEnd) {
  Question question =
      small_question(1024, {"--train.batch_size=512", "--model.num_hidden_layers=6",
                            "--model.num_attention_heads=16", "--model.num_key_value_heads=16",
                            "--model.hidden_size=64"});
  question.figures.ranks_per_host = 8;
  question.rows = 3;
  const Ranking ranking = rank_layouts(question);
  EXPECT_EQ(ranking.rows.size(), 3U);
  for (const Row& row : ranking.rows) EXPECT_EQ(row.layout.ranks(), 1024);
  EXPECT_THAT(ranking_table(ranking, question, false), HasSubstr("1,024 ranks"));
}

}  // namespace

}  // namespace atl::plan
