#include "atoll/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Arguments, SettingsAreTakenOutInBothSpellings) {
  const Arguments split =
      split_arguments({"--optim.clip", "0.5", "recipes/x.toml", "--train.lr=3e-4", "--out", "dir"});
  EXPECT_THAT(split.overrides, ElementsAre("--optim.clip=0.5", "--train.lr=3e-4"));
  EXPECT_THAT(split.options, ElementsAre("recipes/x.toml", "--out", "dir"));
}

TEST(Arguments, AValueMayBeNegativeButNotAnOption) {
  EXPECT_THAT(split_arguments({"--a.b", "-1"}).overrides, ElementsAre("--a.b=-1"));
  EXPECT_THAT(split_arguments({"--a.b", "--c.d=1"}).overrides, ElementsAre("--a.b", "--c.d=1"));
  EXPECT_THAT(split_arguments({"--a.b"}).overrides, ElementsAre("--a.b"));
}

TEST(Arguments, TextWithDotsIsNoSetting) {
  const std::vector<std::string> text = {"--prompt=Well. Yes.", "-- Hello. World", "a.b", "--x"};
  EXPECT_THAT(split_arguments(text).overrides, IsEmpty());
  EXPECT_EQ(split_arguments(text).options, text);
}

TEST(Arguments, NothingIsTakenAfterTwoDashes) {
  const Arguments split = split_arguments({"--a.b=1", "--", "--c.d=2"});
  EXPECT_THAT(split.overrides, ElementsAre("--a.b=1"));
  EXPECT_THAT(split.options, ElementsAre("--", "--c.d=2"));
}

}  // namespace
}  // namespace atl::cli
