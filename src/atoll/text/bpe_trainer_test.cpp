#include "atoll/text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

Merges merges_of(const Tokenizer& tokenizer) {
  return text::parse_tokenizer_json(tokenizer.to_json(), "test").model.merges;
}

// The definition, recounting every pair after every merge: words are what spaces separate.
Merges slow_merges(std::string_view text, std::size_t num_merges) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(text::to_byte_level(std::string(1, static_cast<char>(byte))));
  }
  std::sort(tokens.begin(), tokens.end());  // UTF-8 sorts as its code points do
  std::map<std::string, std::size_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) ids[tokens[id]] = id;
  std::vector<std::vector<std::size_t>> words(1);
  for (const char c : text) {
    if (c == ' ' && !words.back().empty()) words.emplace_back();
    words.back().push_back(ids[text::to_byte_level(std::string(1, c))]);
  }
  Merges merges;
  while (merges.size() < num_merges) {
    std::map<std::pair<std::size_t, std::size_t>, int> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    if (counts.empty()) break;
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;  // the first of equals, which has the lowest ids
        })->first;
    merges.emplace_back(tokens[best.first], tokens[best.second]);
    const std::string merged = tokens[best.first] + tokens[best.second];
    if (!ids.contains(merged)) {
      ids[merged] = tokens.size();
      tokens.push_back(merged);
    }
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != best.first || word[i + 1] != best.second) continue;
        word[i] = ids[merged];
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

TEST(BpeTrainer, MergesAsTheDefinitionSays) {
  unsigned state = 1;
  const auto draw = [&](unsigned n) {
    return (state = state * 1664525 + 1013904223) >> 16 & (n - 1);
  };
  for (int round = 0; round < 40; ++round) {
    std::string text = "a";
    const unsigned letters = round % 2 == 0 ? 8 : 4;
    // No word holds the same letter twice running: there the trainer, like Hugging Face's, counts
    // overlapping pairs, and the definition leaves open what that means.
    while (text.size() < 300) {
      const char c = draw(4) == 0 ? ' ' : static_cast<char>('a' + draw(letters));
      if (c != text.back()) text.push_back(c);
    }
    const std::string_view view = text;
    const Merges expected = slow_merges(text, 12);
    const Tokenizer tokenizer =
        train_bpe({&view, 1}, {.vocab_size = 257 + 12, .special_tokens = {"<|endoftext|>"}});
    EXPECT_EQ(merges_of(tokenizer), expected) << text;
  }
}

TEST(BpeTrainer, EqualCountsGoToTheLowerIds) {
  const std::string_view text = "cd ab ef";
  const Merges expected = {{"a", "b"}, {"c", "d"}};
  EXPECT_EQ(merges_of(train_bpe({&text, 1}, {.vocab_size = 259})), expected);
}

TEST(BpeTrainer, SpecialsComeFirstThenBytesThenMerges) {
  const std::string_view text = "aaab aaab";
  const Tokenizer tokenizer =
      train_bpe({&text, 1}, {.vocab_size = 260, .special_tokens = {"<pad>", "</s>"}});
  EXPECT_EQ(tokenizer.id_of("<pad>"), 0);
  EXPECT_EQ(tokenizer.end_of_text(), 1);
  EXPECT_EQ(tokenizer.id_of("!"), 2);
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.token_bytes(258), "aa");
}

TEST(BpeTrainer, StopsAtMinFrequencyAndWhereTheTextEnds) {
  const std::string_view text = "ab ab ab cd cd ef";
  EXPECT_EQ(train_bpe({&text, 1}, {.vocab_size = 1000, .min_frequency = 3}).vocab_size(), 258);
  const Tokenizer all = train_bpe({&text, 1}, {.vocab_size = 1000});
  EXPECT_EQ(all.encode("ab cd ef").size(), 3U);
  EXPECT_LT(all.vocab_size(), 270);
  EXPECT_EQ(train_bpe({}, {.vocab_size = 1000}).vocab_size(), 257);
}

TEST(BpeTrainer, ManyTextsAreOneTextWithoutWordsAcross) {
  const std::vector<std::string_view> parts = {"hello wor", "ld", " hello world"};
  const std::string_view whole = "hello wor\xFFld\xFF hello world";
  const Tokenizer a = train_bpe(parts, {.vocab_size = 290});
  const Tokenizer b = train_bpe({&whole, 1}, {.vocab_size = 290});
  EXPECT_EQ(a.to_json(), b.to_json());
}

TEST(BpeTrainer, WritesWhatItReads) {
  const std::string_view text = "In the beginning God created the heaven and the earth.\xFF \"\\\n";
  for (const char* pattern : {"", R"(\p{L}+|"|[^\p{L}]+)"}) {
    const Tokenizer made = train_bpe({&text, 1}, {.vocab_size = 280, .pattern = pattern});
    const Tokenizer read = Tokenizer::from_json(made.to_json(), "made");
    EXPECT_EQ(read.to_json(), made.to_json());
    EXPECT_EQ(read.encode(text), made.encode(text));
    EXPECT_EQ(read.end_of_text(), made.end_of_text());
    EXPECT_EQ(read.decode(read.encode(text)), text);
  }
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  const std::string_view text = "abc";
  const std::pair<BpeTrainerOptions, std::string> cases[] = {
      {{.vocab_size = 256}, "vocab_size is 256: byte-level BPE needs at least 257"},
      {{.vocab_size = -1}, "vocab_size is -1"},
      {{.special_tokens = {"a b", ""}}, "special_tokens[1] is empty"},
      {{.special_tokens = {"x", "<s>", "<s>"}}, "special_tokens[0], \"x\", is the spelling"},
      {{.special_tokens = {"<s>", "<s>"}}, "has \"<s>\" twice"},
      {{.special_tokens = {"\xFF\xFE"}}, "not valid UTF-8"},
      {{.pattern = "("}, "the pattern to train with"},
  };
  for (const auto& [options, message] : cases) {
    try {
      train_bpe({&text, 1}, options);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
  }
}

}  // namespace
}  // namespace atl
