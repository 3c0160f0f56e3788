#include "atoll/serve/api/stop_finder.h"

#include <gtest/gtest.h>

namespace atl::serve::api {
namespace {

TEST(StopFinder, HoldsBackWhatMayBecomeAStop) {
  StopFinder finder({"END", "NDX"});
  EXPECT_EQ(finder.push("the E"), "the ");
  EXPECT_EQ(finder.push("N"), "");
  EXPECT_EQ(finder.push("a"), "ENa");
  EXPECT_EQ(finder.push("ENDa"), "");
  EXPECT_TRUE(finder.has_stopped());
  EXPECT_EQ(finder.push("more"), "");
}

TEST(StopFinder, TakesTheFirstOfSeveral) {
  StopFinder finder({"c", "bc"});
  EXPECT_EQ(finder.push("abcd"), "a");
  EXPECT_TRUE(finder.has_stopped());
}

TEST(StopFinder, FindsWhatBeginsInsideAFalseBeginning) {
  StopFinder finder({"aab"});
  EXPECT_EQ(finder.push("aaa"), "a");
  EXPECT_EQ(finder.push("b"), "");
  EXPECT_TRUE(finder.has_stopped());
}

TEST(StopFinder, ShowsTheRestAtTheEnd) {
  StopFinder finder({"END"});
  EXPECT_EQ(finder.push("EN"), "");
  EXPECT_EQ(finder.finish(), "EN");
  EXPECT_FALSE(finder.has_stopped());
}

TEST(StopFinder, WithoutStopsHoldsNothing) {
  StopFinder finder({});
  EXPECT_EQ(finder.push("anything"), "anything");
}

}  // namespace
}  // namespace atl::serve::api
