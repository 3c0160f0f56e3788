#include "atoll/serve/grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/base/error.h"
#include "atoll/serve/grammar/testing.h"

namespace atl::serve {
namespace {

using grammar::testing::draw_text;
using grammar::testing::refusal;
using grammar::testing::tokenizer_fixture;
using ::testing::HasSubstr;

TEST(MakeConstraint, ChoicesAreAllDrawn) {
  const Tokenizer tokenizer = tokenizer_fixture("gpt2");
  const std::int32_t end = tokenizer.end_of_text().value();
  GrammarCache cache(tokenizer);
  const FormatRequest request = {FormatRequest::kChoice, R"(["yes", "yesterday", "no", "né", ""])"};
  text::testing::Random random(1);
  std::set<std::string> drawn;
  for (int i = 0; i < 200; ++i) {
    const auto constraint = make_constraint(request, cache, {&end, 1});
    drawn.insert(draw_text(*constraint, tokenizer, end, random).value());
  }
  EXPECT_EQ(drawn, (std::set<std::string>{"yes", "yesterday", "no", "né", ""}));
}

TEST(MakeConstraint, RefusesWhatIsWrong) {
  EXPECT_THAT(refusal({FormatRequest::kChoice, "yes"}), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal({FormatRequest::kChoice, "[]"}), HasSubstr("list of 1"));
  EXPECT_THAT(refusal({FormatRequest::kChoice, R"(["a", 1])"}), HasSubstr("1 is not a text"));
  EXPECT_THAT(refusal({FormatRequest::kRegex, std::string(2 << 20, 'a')}), HasSubstr("the most"));
}

// Rules that derive no text in exponentially many ways.
TEST(MakeConstraint, RefusesAGrammarThatExplodes) {
  std::string grammar = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) {
    grammar += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" +
               std::to_string(i + 1) + " | \"\"\n";
  }
  grammar += "r40 ::= \"a\" | \"\"\n";
  GrammarCache cache(tokenizer_fixture("byte"));
  EXPECT_THROW((void)make_constraint({FormatRequest::kGrammar, grammar}, cache, {}), Error);
}

TEST(GrammarCache, KeepsTheGrammarsUsedLast) {
  GrammarCache cache(tokenizer_fixture("byte"), 2);
  const FormatRequest a = {FormatRequest::kRegex, "a"}, b = {FormatRequest::kRegex, "b"};
  const FormatRequest same_text = {FormatRequest::kGrammar, "root ::= \"a\""};
  const auto first = cache.masks(a);
  EXPECT_EQ(cache.masks(a), first);
  const auto second = cache.masks(b);
  EXPECT_NE(second, first);
  EXPECT_EQ(cache.masks(a), first);
  EXPECT_NE(cache.masks(same_text), first);  // drops b
  EXPECT_EQ(cache.masks(a), first);
  EXPECT_NE(cache.masks(b), second);
}

TEST(GrammarCache, ARefusalIsNotKept) {
  GrammarCache cache(tokenizer_fixture("byte"));
  for (int i = 0; i < 2; ++i) EXPECT_THROW((void)cache.masks({FormatRequest::kRegex, "("}), Error);
}

}  // namespace
}  // namespace atl::serve
