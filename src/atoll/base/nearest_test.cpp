#include "atoll/base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl {
namespace {

TEST(Nearest, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("tarin", "train"), 1u);
  EXPECT_EQ(edit_distance("train", "train"), 0u);
}

TEST(Nearest, NamesTheLikeliestAndNothingFarAway) {
  const std::vector<std::string> names = {"train", "eval", "generate", "tokenize"};
  EXPECT_EQ(nearest_name("trian", names), "train");
  EXPECT_EQ(nearest_name("tokenise", names), "tokenize");
  EXPECT_EQ(nearest_name("frobnicate", names), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), names), "");
}

TEST(Nearest, ADottedNameMayHaveTheWrongGroup) {
  const std::vector<std::string> names = {"train.steps", "train.dropout", "optim.lr"};
  EXPECT_EQ(nearest_name("train.lr", names), "optim.lr");
  EXPECT_EQ(nearest_name("train.step", names), "train.steps");
}

}  // namespace
}  // namespace atl
