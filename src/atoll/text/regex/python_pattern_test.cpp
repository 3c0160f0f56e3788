#include "atoll/text/regex/python_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::string& pattern) {
  try {
    const PythonPattern compiled(pattern, "here");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What Python 3.13's re.fullmatch says of each.
TEST(PythonPattern, MatchesAllOfATextOrNothing) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c : {
           Case{"q_proj", "q_proj", true},
           Case{"q_proj", "a.q_proj", false},
           Case{".*\\.q_proj", "a.b.q_proj", true},
           Case{".*q_proj", "a.q_proj.x", false},
           Case{"a|ab", "ab", true},  // goes on to the alternative that reaches the end
           Case{"(?P<x>a)b(?P=x)", "aba", true},
           Case{"(a|b)\\1", "aa", true},
           Case{"(a|b)\\1", "ab", false},
           Case{"a{,2}", "aa", true},
           Case{"a{,2}", "aaa", false},
           Case{"a\\Z", "a", true},
           Case{"[[a]x", "[x", true},
           Case{"[]a]", "]", true},
           Case{"(?i)ABC", "abc", true},
           Case{"(?i:A)b", "aB", false},
           Case{"", "", true},
           Case{"\\d+\\.\\w+", "12.x_1", true},
       }) {
    EXPECT_EQ(PythonPattern(c.pattern, "here").matches(c.text), c.matches)
        << c.pattern << " of " << c.text;
  }
}

TEST(PythonPattern, ABeginningMayMatch) {
  const PythonPattern pattern(R"(.*?\.[^.]*\.(?P<idx>\d+)\.)", "here");
  EXPECT_TRUE(pattern.matches_beginning("model.layers.12.mlp.experts.3.up"));
  EXPECT_EQ(pattern.group("model.layers.12.mlp.experts.3.up", "idx"), "12");
  EXPECT_EQ(pattern.group("model.norm", "idx"), std::nullopt);
  EXPECT_FALSE(pattern.matches_beginning("layers.12.mlp"));
}

TEST(PythonPattern, WhatIsNotPythonsIsRefused) {
  for (const char* pattern : {"\\Kx", "\\Qx\\E", "(?R)", "(*FAIL)", "(?<n>x)", "(?x)a", "a\\", "[a",
                              "a(?i)b", "\\p{L}"}) {
    EXPECT_THAT(error_of(pattern), HasSubstr("here: ")) << pattern;
  }
  EXPECT_THAT(error_of("a("), AllOf(HasSubstr("here"), HasSubstr("not valid")));
}

TEST(PythonPattern, APatternThatTakesForeverIsGivenUp) {
  const PythonPattern pattern("(a|a)*[bd]", "here");
  EXPECT_THROW((void)pattern.matches(std::string(64, 'a') + "c"), Error);
}

}  // namespace
}  // namespace atl::text
