#include "atoll/base/nesting.h"

#include <gtest/gtest.h>

#include <string>

namespace atl {
namespace {

TEST(Nesting, CountsBracketsOutsideStrings) {
  EXPECT_EQ(nesting_depth(""), 0);
  EXPECT_EQ(nesting_depth("3"), 0);
  EXPECT_EQ(nesting_depth(R"({"a": [1, {"b": []}], "c": {}})"), 4);
  EXPECT_EQ(nesting_depth(R"(["[[[[", "\"[[[", "\\", []])"), 2);
  EXPECT_EQ(nesting_depth("]]]]["), 0);
  EXPECT_EQ(nesting_depth(std::string(100000, '[')), 100000);
}

}  // namespace
}  // namespace atl
