#include "atoll/base/settings/toml_mistake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/settings/toml.h"

namespace atl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What the parser says of a file with this line as its second.
std::string error_of(const std::string& line) {
  try {
    parse_toml("[data]\n" + line + "\n", "r.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(TomlMistake, ATextWithoutQuotesIsShownWithThem) {
  EXPECT_EQ(error_of("text = books/x.txt"),
            "r.toml:2:8: a text stands in quotes; write text = \"books/x.txt\"");
  EXPECT_EQ(error_of("text = books/x.txt  # the books"),
            "r.toml:2:8: a text stands in quotes; write text = \"books/x.txt\"");
  for (const char* value : {"/abs/x.txt", "~/x", "./x", "adamw", "f32", "tensor", "infinite",
                            "nowhere", "wsd", "cuda:0"}) {
    EXPECT_THAT(error_of(std::string("text = ") + value),
                HasSubstr(std::string("write text = \"") + value + "\""));
  }
  EXPECT_THAT(error_of("text = [a.txt, b/c.txt]"),
              HasSubstr("write text = [\"a.txt\", \"b/c.txt\"]"));
}

TEST(TomlMistake, WordsAndNumbersOfOtherLanguagesAreAnswered) {
  EXPECT_EQ(error_of("a = True"), "r.toml:2:5: write a = true");
  EXPECT_THAT(error_of("a = no"), HasSubstr("write a = false"));
  EXPECT_THAT(error_of("a = None"), HasSubstr("TOML has no None; remove the line"));
  EXPECT_THAT(error_of("a = null"), HasSubstr("TOML has no null"));
  EXPECT_THAT(error_of("a ="), HasSubstr("a has no value"));
  for (const char* value : {"8k", "10%", "1,000", ".5", "1.", "1e-3f", "007", "3; b = 4"}) {
    EXPECT_THAT(error_of(std::string("a = ") + value),
                HasSubstr(std::string(value) + " is no number"));
  }
  EXPECT_THAT(error_of("a = \"C:\\Users\""), HasSubstr("write it twice"));
}

TEST(TomlMistake, OtherFormatsAreNamed) {
  EXPECT_THAT(error_of("text: a.txt"), HasSubstr("that looks like YAML"));
  EXPECT_THAT(error_of("{\"text\": \"a.txt\"}"), HasSubstr("that looks like JSON"));
}

TEST(TomlMistake, WhatIsNotUnderstoodIsLeftToTheParser) {
  for (const char* line : {"a = = 3", "[group", "a b = 3", "a = \x01", "a = 'x"}) {
    EXPECT_EQ(advice_for_toml(line), "") << line;
    EXPECT_THAT(error_of(line), StartsWith("r.toml:")) << line;
  }
  EXPECT_EQ(advice_for_toml("a = " + std::string(300, 'x')), "");
  EXPECT_THAT(error_of("text = [\"a\",\nsteps = 5"), Not(HasSubstr("is no number")))
      << "the line is right, and the list before it was not closed";
}

}  // namespace
}  // namespace atl
