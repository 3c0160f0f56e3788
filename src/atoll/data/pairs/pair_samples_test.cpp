#include "atoll/data/pairs/pair_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/data/loader.h"

namespace atl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pairs of documents: of document d, 3 tokens of prompt and 2 + d % 3 of an answer, each token
// 10 d + its place.
TokenVector pairs_of(std::int64_t num_documents, std::int64_t long_prompt = -1) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> starts;
  std::vector<std::uint8_t> mask;
  for (std::int64_t d = 0; d < num_documents; ++d) {
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
    const std::int64_t prompt = d == long_prompt ? 20 : 3;
    for (std::int64_t i = 0; i < prompt + 2 + d % 3; ++i) {
      tokens.push_back(static_cast<std::int32_t>(10 * d + i));
      mask.push_back(i >= prompt ? 1 : 0);
    }
    mask[static_cast<std::size_t>(starts.back())] = d == 2 ? 1 : 0;
  }
  return {"pairs", std::move(tokens), std::move(starts), std::move(mask)};
}

TEST(PairSamples, NeighboursStayTogetherAndEachPairComesOnceAnEpoch) {
  const TokenVector source = pairs_of(10);
  const PairSamples samples(source, 7, 16, PairSamples::Order::kShuffled);
  EXPECT_EQ(samples.num_pairs(), 5);
  bool is_shuffled = false;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> seen;
    for (std::int64_t s = 10 * epoch; s < 10 * (epoch + 1); s += 2) {
      const std::int64_t document = samples.document_of(s);
      EXPECT_EQ(document % 2, 0);
      EXPECT_EQ(samples.document_of(s + 1), document + 1);
      is_shuffled = is_shuffled || document != s % 10;
      seen.insert(document);
    }
    EXPECT_EQ(seen.size(), 5U);
  }
  EXPECT_TRUE(is_shuffled);
}

TEST(PairSamples, ADocumentIsARowWithTheLossOfItsAnswer) {
  const TokenVector source = pairs_of(4);
  const PairSamples samples(source, 7, 8, PairSamples::Order::kAsInSource);
  RowScratch scratch;
  std::vector<std::int32_t> tokens(8), targets(8);
  samples.fill(1, {tokens, targets, {}}, scratch);
  EXPECT_THAT(tokens, ElementsAre(10, 11, 12, 13, 14, 15, 0, 0));
  EXPECT_THAT(targets, ElementsAre(-1, -1, 13, 14, 15, -1, -1, -1));
  EXPECT_TRUE(samples.is_marked(2));
  EXPECT_FALSE(samples.is_marked(3));
}

TEST(PairSamples, AStepHasAsManyTargetsAsPairs) {
  const TokenVector source = pairs_of(12);
  const PairSamples samples(source, 7, 16, PairSamples::Order::kShuffled);
  RowScratch scratch;
  EXPECT_EQ(count_step_targets(samples, 0, 8, scratch), 4);
  Loader loader(samples, {.micro_batch = 4, .global_batch = 8});
  EXPECT_EQ(loader.next().step_targets, 4);
}

TEST(PairSamples, PairsWithoutAnAnswerInTheContextAreLeftOut) {
  const TokenVector source = pairs_of(8, /*long_prompt=*/5);
  const PairSamples samples(source, 7, 12, PairSamples::Order::kAsInSource);
  EXPECT_EQ(samples.num_pairs(), 3);
  EXPECT_EQ(samples.num_documents(), 8);
  EXPECT_EQ(samples.document_of(4), 6);
  const TokenVector none = pairs_of(2, /*long_prompt=*/0);
  try {
    const PairSamples refused(none, 7, 12, PairSamples::Order::kShuffled);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("raise train.context"));
  }
}

TEST(PairSamples, OtherDataIsRefused) {
  const TokenVector text("text", {1, 2, 3, 4});
  EXPECT_THROW(PairSamples(text, 7, 2, PairSamples::Order::kShuffled), Error);
}

}  // namespace
}  // namespace atl::data
