#include "atoll/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::text {
namespace {

using Words = std::vector<std::string>;

Words words(const std::vector<PreTokenizerStep>& steps, std::string_view text) {
  const PreTokenizer pre_tokenizer(steps, "test.json");
  RegexMatcher matcher;
  Words words;
  pre_tokenizer.for_each_word(text, matcher,
                              [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words gpt2(std::string_view text) {
  return words({{.pattern = std::string(kGpt2Pattern)}}, text);
}

TEST(PreTokenizer, Gpt2CutsContractionsAndLeadingSpaces) {
  EXPECT_EQ(gpt2("I'm you're DON'T it's  ok"),
            (Words{"I", "'m", " you", "'re", " DON", "'", "T", " it", "'s", " ", " ok"}));
}

TEST(PreTokenizer, Gpt2KnowsUnicodeLettersDigitsAndMarks) {
  EXPECT_EQ(gpt2("naïve Ünï٣٤½ ⅧПривет中文"), (Words{"naïve", " Ünï", "٣٤½", " Ⅷ", "Привет中文"}));
  EXPECT_EQ(gpt2("e\u0301t"), (Words{"e", "\u0301", "t"}));  // a mark is not a letter
  EXPECT_EQ(gpt2("hi😀👍🏽!"), (Words{"hi", "😀👍🏽!"}));
}

TEST(PreTokenizer, Gpt2LeavesTheLastSpaceOfARunToTheWord) {
  EXPECT_EQ(gpt2("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(gpt2("a \n\n b\n"), (Words{"a", " \n\n", " b", "\n"}));
  EXPECT_EQ(gpt2("a\t\tb  "), (Words{"a", "\t", "\t", "b", "  "}));
  EXPECT_EQ(gpt2("a\u00a0\u3000b"), (Words{"a", "\u00a0", "\u3000", "b"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodesAndNotPcres) {
  EXPECT_EQ(gpt2("!\u180e!"), (Words{"!\u180e!"}));  // not White_Space since Unicode 6.3
  EXPECT_EQ(gpt2("!\u0085!"), (Words{"!", "\u0085", "!"}));
  EXPECT_EQ(gpt2("!\x1c!"), (Words{"!\x1c!"}));  // str.isspace() of Python thinks otherwise
}

TEST(PreTokenizer, BytesThatAreNotUtf8AreWordsOfTheirOwn) {
  EXPECT_EQ(gpt2("ab\xFF\xFE cd\xE2\x82"), (Words{"ab", "\xFF\xFE", " cd", "\xE2\x82"}));
  EXPECT_EQ(gpt2("a  \xFF"), (Words{"a", "  ", "\xFF"}));  // the text before ends there
}

TEST(PreTokenizer, NoByteIsLostOrAdded) {
  unsigned state = 7;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      text.push_back(static_cast<char>(state >> 24));
    }
    std::string joined;
    for (const std::string& word : gpt2(text)) joined += word;
    ASSERT_EQ(joined, text);
  }
}

TEST(PreTokenizer, PrefixSpaceGoesOnlyWhereNoSpaceIs) {
  const std::vector<PreTokenizerStep> steps = {{.kind = PreTokenizerStep::Kind::kPrefixSpace},
                                               {.pattern = std::string(kGpt2Pattern)}};
  EXPECT_EQ(words(steps, "a b"), (Words{" a", " b"}));
  EXPECT_EQ(words(steps, " a"), (Words{" a"}));
  EXPECT_EQ(words(steps, "\na"), (Words{" ", "\n", "a"}));
  EXPECT_EQ(words(steps, ""), Words{});
}

TEST(PreTokenizer, SplitsKeepOrRemoveMatches) {
  const auto kRemoved = PreTokenizerStep::Behavior::kRemoved;
  EXPECT_EQ(words({{.pattern = "[,;]"}}, "a,b;"), (Words{"a", ",", "b", ";"}));
  EXPECT_EQ(words({{.pattern = "[,;]", .behavior = kRemoved}}, "a,b;"), (Words{"a", "b"}));
  EXPECT_EQ(words({{.pattern = "[,;]", .invert = true, .behavior = kRemoved}}, "a,b;"),
            (Words{",", ";"}));
  EXPECT_EQ(words({{.pattern = ".*", .literal = true}}, "ab.*c"), (Words{"ab", ".*", "c"}));
}

TEST(PreTokenizer, LongRunsNeitherOverflowNorTakeQuadraticTime) {
  EXPECT_EQ(gpt2(std::string(1 << 20, ' ') + "x").size(), 2U);
  EXPECT_EQ(gpt2(std::string(1 << 20, 'a')).size(), 1U);
  // Each round of the group is remembered for backtracking: more than the small stack holds.
  EXPECT_EQ(words({{.pattern = "(?:ab|a)+"}}, std::string(100'000, 'a')).size(), 1U);
}

TEST(RegexSyntax, RewritesWhatPcreReadsDifferently) {
  EXPECT_EQ(to_pcre2_syntax(R"(\p{Han}\p{^Lu}\P{L})", "w"), R"(\p{sc:Han}\p{^Lu}\P{L})");
  EXPECT_EQ(to_pcre2_syntax(R"(a{,3}\u00e9\x41\v\.)", "w"), R"(a{0,3}\x{00e9}\x{41}\x{b}\.)");
  EXPECT_EQ(words({{.pattern = R"(\S+)"}}, "a\u180e b"), (Words{"a\u180e", " ", "b"}));
  EXPECT_EQ(words({{.pattern = R"([\S]{2})"}}, "abc "), (Words{"ab", "c "}));
  EXPECT_EQ(words({{.pattern = R"(\p{Han}+)"}}, "中、文"), (Words{"中", "、", "文"}));
}

TEST(RegexSyntax, RefusesByNameWhatItCannotRewrite) {
  const std::pair<std::string, std::string> cases[] = {
      {R"(\w+)", R"(the escape "\w" at byte 0)"},
      {R"(a\b)", R"(the escape "\b" at byte 1)"},
      {R"((a)\1)", R"(the escape "\1")"},
      {"^a", "an anchor \"^\""},
      {"a$", "an anchor \"$\""},
      {"(?m:a)", "the group \"(?m:\""},
      {"(?<n>a)", "the group \"(?<n\""},
      {"(*UCP)a", "the group \"(*\""},
      {"a{1,3}+", "the repeat \"{1,3}+\""},
      {"a{2}?", "the repeat \"{2}?\""},
      {"a{x}", "a brace"},
      {"[a[b]]", "a class inside a class \"[b\""},
      {"[a&&b]", "a class intersection \"&&\""},
      {"[]a]", "a ']' that opens a class"},
      {R"(\pL)", R"(a property without braces "\pL")"},
      {R"(\p{L)", "a property without braces"},
      {R"(\xff)", R"(the escape "\xff")"},
      {R"(\uzz)", R"(the escape "\uzz)"},
      {"a\\", "a backslash at the end"},
      {"(a", "not valid"},
      {"[a", "not valid"},
      {R"(\p{Klingon})", "not valid"},
      {"a*", "matches the empty string"},
  };
  for (const auto& [pattern, message] : cases) {
    try {
      words({{.pattern = pattern}}, "text");
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), testing::StartsWith("test.json: pre_tokenizer: "));
      EXPECT_THAT(error.what(), testing::HasSubstr(message)) << pattern;
    }
  }
}

}  // namespace
}  // namespace atl::text
