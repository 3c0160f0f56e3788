#include "atoll/island/protocol/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::island {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Settings, ThoseThatDifferAreNamedWithBothValues) {
  const std::string ours = settings_text({{"outer.lr", "0.5"}, {"train.steps", "100"}});
  EXPECT_EQ(ours, "outer.lr = 0.5; train.steps = 100");
  EXPECT_EQ(settings_difference(ours, ours), "");
  EXPECT_EQ(settings_difference(settings_text({{"outer.lr", "0.7"}, {"train.steps", "100"}}), ours),
            "outer.lr is 0.7 there and 0.5 in the run");
}

TEST(Settings, OnesThatOnlyOneSideKnowsAreNamedToo) {
  EXPECT_EQ(settings_difference("a = 1", "a = 1; b = "), "b is nothing there and  in the run");
  EXPECT_THAT(settings_difference("", "a = 1"), HasSubstr("a is nothing there"));
}

TEST(Settings, ManyDifferencesAreCounted) {
  const std::string text =
      settings_difference("a = 1; b = 1; c = 1; d = 1; e = 1", "a = 2; b = 2; c = 2; d = 2; e = 2");
  EXPECT_THAT(text, AllOf(HasSubstr("c is 1 there"), Not(HasSubstr("d is")), HasSubstr("2 more")));
}

TEST(Settings, GarbageHasADifferenceToo) {
  for (const char* text : {";", "; ;", " = ", "x", "; a = 1", "a = 1; "}) {
    EXPECT_NE(settings_difference(text, "a = 1"), "") << text;
  }
}

}  // namespace
}  // namespace atl::island
