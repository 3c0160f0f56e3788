#include "atoll/serve/grammar/token_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "atoll/serve/grammar/automaton.h"
#include "atoll/serve/grammar/gbnf.h"
#include "atoll/serve/grammar/json_values.h"
#include "atoll/serve/grammar/testing.h"

namespace atl::serve::grammar {
namespace {

using testing::allowed_tokens;
using testing::draw_text;
using testing::tokenizer_fixture;
using text::testing::Random;

class TokenMasks : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<GrammarConstraint> constraint(const Grammar& grammar,
                                                std::size_t max_bytes = 1 << 26) {
    auto masks = std::make_shared<SharedMasks>(std::make_shared<const Grammar>(grammar),
                                               vocabulary_, max_bytes);
    return std::make_unique<GrammarConstraint>(masks, std::vector<std::int32_t>{end_});
  }

  const Tokenizer tokenizer_ = tokenizer_fixture(GetParam());
  const std::shared_ptr<const Vocabulary> vocabulary_ =
      std::make_shared<const Vocabulary>(tokenizer_);
  const std::int32_t end_ = tokenizer_.end_of_text().value();
};

// Of every token, one after another and byte by byte.
std::vector<std::int32_t> slow_mask(const Grammar& grammar, const std::string& text,
                                    const Vocabulary& vocabulary, std::int32_t end) {
  Automaton automaton(std::make_shared<const Grammar>(grammar));
  const auto after = [&](StateId state, std::string_view bytes) {
    for (const char byte : bytes) state = automaton.step(state, static_cast<std::uint8_t>(byte));
    return state;
  };
  const StateId state = after(automaton.start(), text);
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < vocabulary.size(); ++token) {
    const std::string_view bytes = vocabulary.bytes(token);
    if (token == end ? automaton.may_end(state)
                     : !bytes.empty() && after(state, bytes) != kDeadState) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

constexpr const char* kGrammars[] = {
    "root ::= \"a\" [a-z]{0,30} (\" \" [a-z]+){2,5} | \"the \"*",
    "root ::= \"(\" root \")\" | [0-9é]{1,3} | \"x\" root",
    "root ::= (([a-e]{1,2} | \"\\n\"){1,3} \" \"){1,3} .{3,25}",
};

TEST_P(TokenMasks, AllowWhatTheAutomatonDoes) {
  Random random(1);
  std::vector<Grammar> grammars = {json_object_grammar()};
  for (const char* gbnf : kGrammars) grammars.push_back(gbnf_grammar(gbnf));
  for (std::size_t which = 0; which < grammars.size(); ++which) {
    for (int round = 0; round < 3; ++round) {
      const auto text = constraint(grammars[which]);
      std::string so_far;
      for (int i = 0; i < 40 && !text->is_over(); ++i) {
        const auto tokens = allowed_tokens(*text, tokenizer_);
        ASSERT_EQ(tokens, slow_mask(grammars[which], so_far, *vocabulary_, end_))
            << which << ": " << so_far;
        const std::int32_t token = tokens[random.below(tokens.size())];
        if (token == end_) break;
        text->accept(token);
        so_far += tokenizer_.token_bytes(token);
      }
    }
  }
}

// With ever more stacks, of which most are dropped.
TEST_P(TokenMasks, AmbiguousTextsGoOnToTheirEnd) {
  const auto text = constraint(gbnf_grammar("root ::= \"a\" root [bc] | \"a\" root [cd] | \"b\""));
  for (int i = 0; i < 15; ++i) {
    ASSERT_FALSE(allowed_tokens(*text, tokenizer_).empty());
    text->accept(tokenizer_.id_of("a").value());
  }
  text->accept(tokenizer_.id_of("b").value());
  for (int i = 0; i < 15; ++i) {
    ASSERT_FALSE(text->is_over());
    text->accept(tokenizer_.id_of("c").value());
  }
  EXPECT_TRUE(text->is_over());
}

TEST_P(TokenMasks, DrawnObjectsAreJson) {
  Random random(2);
  const Grammar grammar = json_object_grammar();
  int drawn = 0;
  const auto masks =
      std::make_shared<SharedMasks>(std::make_shared<const Grammar>(grammar), vocabulary_);
  for (int i = 0; i < 100; ++i) {
    GrammarConstraint text(masks, {end_});
    const auto json = draw_text(text, tokenizer_, end_, random);
    if (!json) continue;
    ++drawn;
    EXPECT_TRUE(nlohmann::json::parse(*json).is_object()) << *json;
  }
  EXPECT_GT(drawn, 80);
}

TEST_P(TokenMasks, EndTokensComeWhereTheTextMayEndOnly) {
  const auto text = constraint(gbnf_grammar("root ::= \"a\" \"b\"?"));
  const auto has_end = [&] {
    const auto tokens = allowed_tokens(*text, tokenizer_);
    return std::find(tokens.begin(), tokens.end(), end_) != tokens.end();
  };
  EXPECT_FALSE(has_end());
  text->accept(tokenizer_.id_of("a").value());
  EXPECT_TRUE(has_end());
  EXPECT_FALSE(text->is_over());
  text->accept(end_);
  EXPECT_TRUE(text->is_over());
  EXPECT_EQ(allowed_tokens(*text, tokenizer_), std::vector<std::int32_t>{end_});
}

TEST_P(TokenMasks, SpecialTokensNeverCome) {
  const auto text = constraint(gbnf_grammar("root ::= .*"));
  for (const std::int32_t token : allowed_tokens(*text, tokenizer_)) {
    EXPECT_TRUE(token == end_ || !tokenizer_.is_special(token)) << token;
  }
}

TEST_P(TokenMasks, ATextWithNothingToFollowIsOver) {
  const auto text = constraint(gbnf_grammar("root ::= \"a\""));
  EXPECT_FALSE(text->is_over());
  text->accept(tokenizer_.id_of("a").value());
  EXPECT_TRUE(text->is_over());
}

TEST_P(TokenMasks, ClearedBitsStayCleared) {
  const auto text = constraint(gbnf_grammar("root ::= .*"));
  std::vector<std::uint64_t> bits((static_cast<std::size_t>(tokenizer_.vocab_size()) + 127) / 64);
  text->mask(bits);
  EXPECT_EQ(bits, std::vector<std::uint64_t>(bits.size()));
}

// The masks begin anew every few tokens.
TEST_P(TokenMasks, FullMasksAreReplacedAndTextsGoOn) {
  Random random(3);
  const Grammar grammar = json_object_grammar();
  const auto small = constraint(grammar, 1);
  const auto large = constraint(grammar);
  for (int i = 0; i < 60 && !large->is_over(); ++i) {
    const auto tokens = allowed_tokens(*large, tokenizer_);
    ASSERT_EQ(allowed_tokens(*small, tokenizer_), tokens);
    const std::int32_t token = tokens[random.below(tokens.size())];
    small->accept(token);
    large->accept(token);
  }
}

TEST_P(TokenMasks, ThreadsShareMasks) {
  auto masks = std::make_shared<SharedMasks>(std::make_shared<const Grammar>(json_object_grammar()),
                                             vocabulary_, 1 << 16);
  std::vector<std::thread> threads;
  std::vector<std::optional<std::string>> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      Random random(i);
      GrammarConstraint text(masks, {end_});
      texts[i] = draw_text(text, tokenizer_, end_, random);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Random random(i);
    EXPECT_EQ(texts[i], draw_text(*constraint(json_object_grammar()), tokenizer_, end_, random));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenMasks,
                         ::testing::Values("gpt2", "llama3", "qwen2", "llama2", "mistral"));

}  // namespace
}  // namespace atl::serve::grammar
