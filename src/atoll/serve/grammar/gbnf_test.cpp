#include "atoll/serve/grammar/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/serve/grammar/testing.h"

namespace atl::serve::grammar {
namespace {

using ::testing::HasSubstr;
using testing::matches;

bool matches(std::string_view gbnf, std::string_view text) {
  return testing::matches(gbnf_grammar(gbnf), text);
}

TEST(Gbnf, LiteralsAndAlternatives) {
  const Grammar grammar = gbnf_grammar("root ::= \"yes\" | \"no\" | \"\"");
  for (const char* text : {"yes", "no", ""}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"y", "yesno", "nop", "x"}) EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST(Gbnf, EscapesOfLiterals) {
  EXPECT_TRUE(matches(R"(root ::= "\"\\\n\t\r\x41\u00e9\U0001F600")", "\"\\\n\t\rAé😀"));
  EXPECT_TRUE(matches(R"(root ::= "#|()é")", "#|()é"));
}

TEST(Gbnf, ClassesAreOfCharactersNotBytes) {
  const Grammar grammar = gbnf_grammar("root ::= [a-cé世-界]");
  for (const char* text : {"a", "c", "é", "世", "界"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"d", "è", "\xC3", "丕", "ab"})
    EXPECT_FALSE(matches(grammar, text)) << text;
  const Grammar negated = gbnf_grammar(R"(root ::= [^a\]\n-])");
  for (const char* text : {"b", "é", "😀"}) EXPECT_TRUE(matches(negated, text)) << text;
  for (const char* text : {"a", "]", "\n", "-", "\xED\xA0\x80"}) {
    EXPECT_FALSE(matches(negated, text)) << text;
  }
  EXPECT_TRUE(matches("root ::= .", "世"));
  EXPECT_FALSE(matches("root ::= .", "\xE4\xB8"));
}

TEST(Gbnf, Repetitions) {
  for (const auto& [bounds, least, most] : {std::tuple("?", 0, 1),
                                            {"*", 0, 99},
                                            {"+", 1, 99},
                                            {"{3}", 3, 3},
                                            {"{2,}", 2, 99},
                                            {"{2,4}", 2, 4},
                                            {"{,2}", 0, 2},
                                            {"{0}", 0, 0},
                                            {"{0,1}", 0, 1}}) {
    const Grammar grammar = gbnf_grammar(std::string("root ::= \"ab\"") + bounds);
    std::string text;
    for (int i = 0; i < 9; ++i, text += "ab") {
      EXPECT_EQ(matches(grammar, text), least <= i && i <= most) << bounds << " " << i;
    }
  }
}

TEST(Gbnf, RepetitionsOfWhatMayBeEmpty) {
  const Grammar grammar = gbnf_grammar("root ::= (\"a\"? \"b\"?){3,5} \"c\"");
  for (const char* text : {"c", "ac", "ababababac", "bbbbbc", "babac"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {"", "bbbbbbc", "ababababababc"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  EXPECT_TRUE(matches("root ::= ((\"a\"?){0,100000}){0,100000}", "aaaa"));
  EXPECT_TRUE(matches("root ::= ((\"a\"?)*)+ \"b\"", "aaaab"));
}

TEST(Gbnf, RulesOverSeveralLinesWithComments) {
  const Grammar grammar = gbnf_grammar(
      "# a list\n"
      "root ::= item  # first\n"
      "  (\",\" item)*\n"
      "  | \"none\"\n"
      "item ::= [0-9]+ | list\n"
      "list ::=\n  \"(\" root \")\"");
  for (const char* text : {"1", "12,3", "none", "(1,(2)),4"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  EXPECT_FALSE(matches(grammar, "(1,(2),4"));
  EXPECT_FALSE(matches(grammar, "1,none"));
}

TEST(Gbnf, NestsWithoutBound) {
  const Grammar grammar = gbnf_grammar("root ::= \"(\" root \")\" | \"\"");
  const std::string open(50000, '('), closed(50000, ')');
  EXPECT_TRUE(matches(grammar, open + closed));
  EXPECT_FALSE(matches(grammar, open + closed + ")"));
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  const auto refused = [](std::string_view text) {
    return testing::refusal({FormatRequest::kGrammar, std::string(text)});
  };
  EXPECT_THAT(refused("root ::= \"a"), HasSubstr("line 1, column 12: a literal has no end"));
  EXPECT_THAT(refused("root ::= [a"), HasSubstr("a class has no end"));
  EXPECT_THAT(refused("root ::= (\"a\""), HasSubstr("')' is missing"));
  EXPECT_THAT(refused("root ::= \"a\")"), HasSubstr("')' without '('"));
  EXPECT_THAT(refused("root ::= a"), HasSubstr("no rule 'a'"));
  EXPECT_THAT(refused("a ::= \"a\""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(refused(""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(refused("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("line 2"));
  EXPECT_THAT(refused("root ::= \"a\"{3,2}"), HasSubstr("fewer times"));
  EXPECT_THAT(refused("root ::= \"a\"{99999999}"), HasSubstr("the most"));
  EXPECT_THAT(refused("root ::= <[12]>"), HasSubstr("tokens in a grammar"));
  EXPECT_THAT(refused("root ::= \"\\q\""), HasSubstr("escape"));
  EXPECT_THAT(refused("root ::= \"\\xZZ\""), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused("root ::= [z-a]"), HasSubstr("range"));
  EXPECT_THAT(refused("root ::= " + std::string(100000, '(')), HasSubstr("too deep"));
}

TEST(Gbnf, RefusesRulesWithoutTextAndLeftRecursion) {
  const auto refused = [](std::string_view text) {
    return testing::refusal({FormatRequest::kGrammar, std::string(text)});
  };
  EXPECT_THAT(refused("root ::= \"a\" root"), HasSubstr("no text has this form"));
  EXPECT_THAT(refused("root ::= []"), HasSubstr("no text has this form"));
  EXPECT_THAT(refused("root ::= a\na ::= a \"x\" | \"y\""), HasSubstr("'a' begins with itself"));
  EXPECT_THAT(refused("root ::= b? root \"x\" | \"\"\nb ::= \"b\""), HasSubstr("left recursion"));
  EXPECT_THAT(refused("root ::= (root \"x\")* \"y\""), HasSubstr("left recursion"));
  // A way that has no end is left out; others stay.
  EXPECT_TRUE(matches("root ::= \"a\" | loop\nloop ::= \"b\" loop", "a"));
  EXPECT_FALSE(matches("root ::= \"a\" | loop\nloop ::= \"b\" loop", "b"));
  EXPECT_TRUE(matches("root ::= \"a\" loop*\nloop ::= \"b\" loop", "a"));
}

TEST(Gbnf, AmbiguityCostsNoMoreThanItsStates) {
  std::string long_text(300, 'a');
  EXPECT_TRUE(matches("root ::= (\"a\" | \"aa\" | \"aaa\")*", long_text));
  EXPECT_TRUE(matches("root ::= s\ns ::= \"a\" s \"a\" | \"a\"?", long_text));
  // Each a leaves a choice: there would be 2^300 stacks.
  long_text[299] = 'b';
  (void)matches("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"b\"", long_text);
}

}  // namespace
}  // namespace atl::serve::grammar
