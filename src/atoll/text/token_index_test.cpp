#include "atoll/text/token_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace atl::text {
namespace {

TEST(TokenIndex, FindsWhatWasAddedAndNothingElse) {
  TokenIndex index;
  EXPECT_EQ(index.find("a"), std::nullopt);
  EXPECT_TRUE(index.add("a", 7));
  EXPECT_TRUE(index.add("", 0));
  EXPECT_TRUE(index.add(std::string_view("a\0b", 3), -2));
  EXPECT_FALSE(index.add("a", 8));
  EXPECT_EQ(index.find("a"), 7);
  EXPECT_EQ(index.find(""), 0);
  EXPECT_EQ(index.find(std::string_view("a\0b", 3)), -2);
  EXPECT_EQ(index.find(std::string_view("a\0", 2)), std::nullopt);
  EXPECT_EQ(index.size(), 3U);
}

// Short words of few letters come again and again; the table grows under them, reserved or not.
TEST(TokenIndex, IsAMap) {
  for (const std::size_t reserved : {0, 100, 5000}) {
    TokenIndex index;
    index.reserve(reserved, 3 * reserved);
    std::map<std::string, std::int32_t, std::less<>> expected;
    std::mt19937 random(5);
    for (std::int32_t id = 0; id < 5000; ++id) {
      std::string token(random() % 7, 'a');
      for (char& c : token) c = static_cast<char>('a' + random() % 4);
      EXPECT_EQ(index.add(token, id), expected.emplace(token, id).second) << token;
    }
    EXPECT_EQ(index.size(), expected.size());
    EXPECT_GT(expected.size(), 1000U);
    const TokenIndex copy = index;
    std::map<std::string, std::int32_t, std::less<>> seen;
    copy.for_each([&](std::string_view token, std::int32_t id) { seen.emplace(token, id); });
    EXPECT_EQ(seen, expected);
    for (const auto& [token, id] : expected) EXPECT_EQ(copy.find(token), id) << token;
    EXPECT_EQ(copy.find("abcabcabc"), std::nullopt);
  }
}

}  // namespace
}  // namespace atl::text
