#include "atoll/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer small_tokenizer() {
  const std::string_view text =
      "the cat and the hat and the bat; naïve élan, 中文中文 😀😀 abababab aaaaaaaa 1000 2000";
  return train_bpe({&text, 1}, {.vocab_size = 320});
}

std::string random_bytes(std::mt19937& rng, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(rng()));
  return bytes;
}

TEST(Tokenizer, AnyBytesSurvive) {
  const Tokenizer tokenizer = small_tokenizer();
  TokenEncoder encoder(tokenizer);
  std::mt19937 rng(1);
  Ids ids;
  for (int round = 0; round < 500; ++round) {
    const std::string bytes = random_bytes(rng, round % 80);
    ids.clear();
    encoder.encode(bytes, ids);
    ASSERT_EQ(tokenizer.decode(ids), bytes);
  }
  EXPECT_EQ(tokenizer.encode("the cat \xC3").size(), 4U);  // and still merges beside bad bytes
}

// Merging by the definition: the best-ranked pair anywhere, leftmost first, until there is none.
Ids slow_encode(const Tokenizer& tokenizer, std::string_view word) {
  const auto merges = text::parse_tokenizer_json(tokenizer.to_json(), "test").model.merges;
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (const auto& [left, right] : merges) {
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] != left || parts[i + 1] != right) continue;
      parts[i] += right;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*tokenizer.id_of(part));
  return ids;
}

TEST(Tokenizer, ShortAndLongWordsMergeAsTheDefinitionSays) {
  std::mt19937 rng(2);
  const auto letters = [&](std::size_t size) {
    std::string word;
    while (word.size() < size) word.push_back("aabc"[rng() % 4]);
    return word;
  };
  std::string text;
  for (int i = 0; i < 60; ++i) text += letters(12) + "\n";
  const std::string_view view = text;
  const Tokenizer tokenizer = train_bpe({&view, 1}, {.vocab_size = 400});
  for (std::size_t size = 1; size < 150; ++size) {
    const std::string word = letters(size);
    ASSERT_EQ(tokenizer.encode(word), slow_encode(tokenizer, word)) << word;
  }
}

TEST(Tokenizer, TheCacheChangesNoId) {
  const Tokenizer tokenizer = small_tokenizer();
  TokenEncoder warm(tokenizer);
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) text.push_back("ab t\0h\xC3 "[rng() % 8]);
    Ids ids;
    warm.encode(text, ids);
    ASSERT_EQ(ids, tokenizer.encode(text));
  }
}

TEST(Tokenizer, EncodingAppends) {
  const Tokenizer tokenizer = small_tokenizer();
  TokenEncoder encoder(tokenizer);
  Ids ids = {7};
  encoder.encode("the", ids);
  encoder.encode("", ids);
  EXPECT_EQ(ids, (Ids{7, *tokenizer.id_of("the")}));
}

TEST(Tokenizer, SpecialTokensInTheTextAreTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "the<|endoftext|><|endoftext|>the<|endoftext|";
  const Ids parsed = tokenizer.encode(text);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), *tokenizer.end_of_text()), 2);
  const Ids plain = tokenizer.encode(text, {.parse_special = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), *tokenizer.end_of_text()), 0);
  EXPECT_EQ(tokenizer.decode(parsed), text);
  EXPECT_EQ(tokenizer.decode(plain), text);
  EXPECT_EQ(tokenizer.decode(parsed, {.skip_special = true}), "thethe<|endoftext|");
}

TEST(Tokenizer, TokensAnswerForThemselves) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.end_of_text(), 0);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.id_of("Ġthe")), " the");
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  for (const std::int32_t id : {-1, tokenizer.vocab_size()}) {
    EXPECT_THROW(tokenizer.token_bytes(id), Error);
    EXPECT_THROW(tokenizer.decode(Ids{id}), Error);
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "the cat and the hat, 中文 \xFF naïve";
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] {
      TokenEncoder encoder(tokenizer);
      for (int i = 0; i < 50; ++i) {
        result.clear();
        encoder.encode(text, result);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, LoadNamesWhatIsMissing) {
  try {
    Tokenizer::load("/nonexistent/model");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), testing::HasSubstr("/nonexistent/model"));
  }
}

TEST(Tokenizer, ADirectoryWithoutOneIsNotAMisspeltName) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "atoll_no_tokenizer";
  std::filesystem::create_directories(directory);
  const auto problem = [&] {
    try {
      Tokenizer::load(directory);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(problem(), fmt::format("no tokenizer in {}: it has neither a tokenizer.json nor a "
                                   "tokenizer.model",
                                   directory.string()));
  write_file(directory / "vocab.json", "{}");
  EXPECT_THAT(problem(), testing::HasSubstr("; of its vocab.json transformers makes one: "));
  std::filesystem::remove_all(directory);
}

TEST(Tokenizer, WhatGoesBeforeATextGoesBeforeItsFirstPartAlone) {
  const std::string text = "One line\nTwo lines\n<s>Three\n";
  for (const char* file : {"llama2.json", "mistral.json", "metaspace.json", "gpt2.json"}) {
    const Tokenizer tokenizer = Tokenizer::load(text::testing::testdata() / file);
    TokenEncoder encoder(tokenizer);
    std::vector<std::int32_t> ids;
    for (int again = 0; again < 2; ++again) {
      ids.clear();
      encoder.encode_part(text.substr(0, 9), false, ids);
      encoder.encode_part(text.substr(9, 10), false, ids);
      encoder.encode_part(text.substr(19), true, ids);
      EXPECT_EQ(ids, tokenizer.encode(text, {.parse_special = false})) << file;
    }
  }
}

TEST(StreamDecoder, JoinsToTheTextAndNeverShowsHalfACharacter) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "naïve 中文 한국어 😀 \U0001d400 end";
  StreamDecoder stream(tokenizer);
  std::string joined;
  for (const std::int32_t id : tokenizer.encode(text)) {
    const std::string piece = stream.push(id);
    EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
    joined += piece;
  }
  EXPECT_EQ(joined + stream.finish(), text);
}

TEST(StreamDecoder, ReplacesWhatCannotBecomeACharacter) {
  const Tokenizer tokenizer = small_tokenizer();
  const auto stream = [&](std::string_view bytes) {
    StreamDecoder decoder(tokenizer, {.skip_special = true});
    std::string out = decoder.push(*tokenizer.end_of_text());
    for (const std::int32_t id : tokenizer.encode(bytes)) out += decoder.push(id);
    out += decoder.finish();
    return out + decoder.finish();  // the second finds nothing left
  };
  EXPECT_EQ(stream("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(stream("a\xE4\xB8z"), "a\uFFFDz");              // one for the maximal part
  EXPECT_EQ(stream("\xE4\xB8"), "\uFFFD");                  // unfinished at the end
  EXPECT_EQ(stream("\xF0\x9F\xC3\xA9"), "\uFFFDé");         // resumes at the next character
  EXPECT_EQ(stream("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
}

// The right sides are what the tokenizers library (0.23) decodes these ids to.
TEST(StreamDecoder, ByteTokensOfARunAreTextTogetherOrNotAtAll) {
  const Tokenizer tokenizer = Tokenizer::load(text::testing::testdata() / "llama2.json");
  const auto stream = [&](const std::vector<std::string>& tokens) {
    StreamDecoder decoder(tokenizer, {.skip_special = true});
    std::string out;
    for (const std::string& token : tokens) out += decoder.push(*tokenizer.id_of(token));
    return out + decoder.finish();
  };
  EXPECT_EQ(stream({"<0xE4>", "<0xB8>", "<0xAD>", "a"}), "中a");
  EXPECT_EQ(stream({"<0xE4>", "<0xB8>", "<0xAD>", "<0xE4>", "a"}), "\uFFFD\uFFFD\uFFFD\uFFFDa");
  EXPECT_EQ(stream({"a", "<0x41>", "<0xFF>"}), "a\uFFFD\uFFFD");
  EXPECT_EQ(stream({"<0xE4>", "</s>", "<0xB8>", "<0xAD>"}), "中");  // special tokens are not there
  EXPECT_EQ(stream({"<0xE4>", "a", "<0xB8>", "<0xAD>"}), "\uFFFDa\uFFFD\uFFFD");
  EXPECT_EQ(stream({"<0x20>", "<0x41>"}), "A");  // as any first space
  EXPECT_EQ(stream({"<0x20>", "<0xFF>", "▁"}), "\uFFFD\uFFFD ");
}

TEST(StreamDecoder, WhatAPromptHoldsBackIsGivenOutBeforeTheRest) {
  const Tokenizer tokenizer = Tokenizer::load(text::testing::testdata() / "llama2.json");
  StreamDecoder decoder(tokenizer);
  for (const char* token : {"<0xE4>", "<0xB8>", "<0xAD>"}) {
    EXPECT_EQ(decoder.push(*tokenizer.id_of(token)), "");
  }
  EXPECT_EQ(decoder.settle(), "中");
  EXPECT_EQ(decoder.push(*tokenizer.id_of("a")), "a");
  EXPECT_EQ(decoder.finish(), "");
}

}  // namespace
}  // namespace atl
