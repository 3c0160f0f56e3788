#include "atoll/serve/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/regex_tree.h"
#include "atoll/serve/grammar/testing.h"

namespace atl::serve::grammar {
namespace {

using ::testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view text) {
  return testing::matches(regex_grammar(pattern), text);
}

// As a JSON schema's `pattern` is.
bool is_found(std::string_view pattern, std::string_view text) {
  const RegexPart part = resolve_anchors(parse_regex(pattern, "pattern"), true, "pattern");
  GrammarBuilder builder("pattern");
  return testing::matches(build_grammar(builder, regex_node(part, builder,
                                                            [&](const CharacterSet& set) {
                                                              return builder.character(set);
                                                            })),
                          text);
}

TEST(RegexGrammar, Classes) {
  for (const char* text : {"a", "é", "\"", "]", "-", "^"}) EXPECT_TRUE(matches(".", text)) << text;
  for (const char* text : {"\n", "\r", "", "ab"}) EXPECT_FALSE(matches(".", text)) << text;
  EXPECT_TRUE(matches(R"([\d\-x\]]+)", "12-x]"));
  EXPECT_TRUE(matches(R"(\d\D\w\W\s\S)", "1a_- x"));
  EXPECT_FALSE(matches(R"(\d)", "٣"));
  EXPECT_FALSE(matches(R"(\W)", "é"));
  EXPECT_TRUE(matches(R"([^\s"]+)", "aé😀"));
  EXPECT_TRUE(matches(R"([а-я]{2})", "да"));
  EXPECT_TRUE(matches(R"(\u00e9\x41\u{1F600}\uD83D\uDE00\.\/\$)", "éA😀😀./$"));
  EXPECT_TRUE(matches(R"([\b-])", "\b"));
}

TEST(RegexGrammar, GroupsAnchorsAndQuantifiers) {
  EXPECT_TRUE(matches("^(?:a|(b)|(?<n>c)|(?P<m>d))+?$", "abcd"));
  EXPECT_TRUE(matches("(^a|b)c", "bc"));
  EXPECT_TRUE(matches("(^a$|^b$)", "b"));
  EXPECT_TRUE(matches("a{2}b{1,}c{0,2}?", "aabbb"));
  EXPECT_FALSE(matches("a{2}", "aaa"));
  EXPECT_TRUE(matches("a{,2}{x}", "a{,2}{x}"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("a||b", ""));
}

TEST(RegexGrammar, SearchesGoOverWhatIsNotAnchored) {
  for (const char* text : {"xaby", "ab", "\nab\n"}) EXPECT_TRUE(is_found("ab", text)) << text;
  EXPECT_TRUE(is_found("^ab", "abx"));
  EXPECT_FALSE(is_found("^ab", "xab"));
  EXPECT_TRUE(is_found("ab$", "xab"));
  EXPECT_FALSE(is_found("ab$", "abx"));
  EXPECT_TRUE(is_found("^a|b$", "xb"));
  EXPECT_TRUE(is_found("^a|b$", "ax"));
  EXPECT_FALSE(is_found("^a|b$", "bx"));
  EXPECT_TRUE(is_found("^$", ""));
  EXPECT_FALSE(is_found("^$", "a"));
  for (const char* pattern : {"", "^", "$", "a*"}) EXPECT_TRUE(is_found(pattern, "xyz")) << pattern;
}

TEST(RegexGrammar, RefusesByName) {
  const auto refused = [](std::string_view text) {
    return testing::refusal({FormatRequest::kRegex, std::string(text)});
  };
  EXPECT_THAT(refused("a(?=b)"), HasSubstr("character 4: lookaround"));
  EXPECT_THAT(refused("(?<!b)a"), HasSubstr("lookaround"));
  EXPECT_THAT(refused("(?i)a"), HasSubstr("flags"));
  EXPECT_THAT(refused(R"((a)\1)"), HasSubstr("backreferences"));
  EXPECT_THAT(refused(R"(\bword)"), HasSubstr("word boundaries"));
  EXPECT_THAT(refused(R"(\p{L})"), HasSubstr("Unicode properties"));
  EXPECT_THAT(refused("a++"), HasSubstr("possessive"));
  EXPECT_THAT(refused("a**"), HasSubstr("quantifier behind"));
  EXPECT_THAT(refused("*a"), HasSubstr("nothing before it"));
  EXPECT_THAT(refused("[[:alpha:]]"), HasSubstr("POSIX"));
  EXPECT_THAT(refused("a^b"), HasSubstr("at the ends alone"));
  EXPECT_THAT(refused("(^a)*"), HasSubstr("at the ends alone"));
  EXPECT_THAT(refused("^*"), HasSubstr("behind an anchor"));
  for (const char* wrong : {"(a", "a)", "[a", "[]", "a{3,2}", "\\", "[b-a]", R"(\uD800)", R"(\xZ1)",
                            R"(\q)", "a{9999999}", "(?<a", "[\\d-z]", "\xFF"}) {
    EXPECT_NE(refused(wrong), "") << wrong;
  }
  EXPECT_THAT(refused(std::string(100000, '(')), HasSubstr("too deep"));
}

std::string random_pattern(text::testing::Random& random, int depth) {
  std::string result;
  for (std::uint64_t i = 1 + random.below(3); i > 0; --i) {
    switch (random.below(depth > 0 ? 6 : 4)) {
      case 0:
        result += "a";
        break;
      case 1:
        result += "b";
        break;
      case 2:
        result += "[^a]";
        break;
      case 3:
        result += "[ab]";
        break;
      case 4:
        result += "(" + random_pattern(random, depth - 1) + ")";
        break;
      default:
        result += "(?:" + random_pattern(random, depth - 1) + "|" +
                  random_pattern(random, depth - 1) + ")";
    }
    const char* quantifiers[] = {"", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"};
    result += quantifiers[random.below(std::size(quantifiers))];
  }
  return result;
}

TEST(RegexGrammar, MatchesWhatTheStandardLibraryDoes) {
  text::testing::Random random(7);
  int matched = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string pattern = random_pattern(random, 2);
    const Grammar grammar = regex_grammar(pattern);
    // Without __polynomial libstdc++ may take years for nested quantifiers.
    const std::regex reference(pattern,
                               std::regex::ECMAScript | std::regex_constants::__polynomial);
    for (int j = 0; j < 30; ++j) {
      std::string text(random.below(8), 'a');
      for (char& c : text) c = static_cast<char>('a' + random.below(3));
      const bool expected = std::regex_match(text, reference);
      matched += expected ? 1 : 0;
      ASSERT_EQ(testing::matches(grammar, text), expected) << pattern << " on " << text;
    }
  }
  EXPECT_GT(matched, 500);
}

TEST(RegexGrammar, LimitsOfLengthGoIntoOneQuantifier) {
  const auto limited = [](std::string_view pattern, std::int64_t min, std::int64_t max) {
    RegexPart part = resolve_anchors(parse_regex(pattern, "p"), false, "p");
    if (!limit_regex(part, min, max)) return std::string("no");
    const RegexLength length = regex_length(part);
    return fmt::format("{} {}", length.min, length.max);
  };
  EXPECT_EQ(limited("[a-z]+", 0, 8), "1 8");
  EXPECT_EQ(limited("[a-z]*", 3, kUnbounded), "3 -1");
  EXPECT_EQ(limited("ab-[a-z]{2,20}-(c|d)", 8, 10), "8 10");
  EXPECT_EQ(limited("a|b[c]*", 1, 5), "1 5");
  EXPECT_EQ(limited("a{3}", 1, 5), "3 3");
  EXPECT_EQ(limited("a{3}", 4, 5), "no");
  EXPECT_EQ(limited("a*b*", 0, 5), "no");
  EXPECT_EQ(limited("(ab)*", 0, 5), "no");
  EXPECT_EQ(limited("(a{1000000}){1000000}", 0, 5), "no");
}

}  // namespace
}  // namespace atl::serve::grammar
