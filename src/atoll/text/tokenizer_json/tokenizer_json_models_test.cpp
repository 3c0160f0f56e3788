// Models that do not merge. Ids as Hugging Face's library gives them for many texts:
// hugging_face_test.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "atoll/base/error.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer.h"

namespace atl {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

Tokenizer read(const Json& json) {
  return Tokenizer::from_json(json.dump(), "t.json");
}

void expect_error(const Json& json, ErrorKind kind, const std::string& message) {
  try {
    read(json);
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

Json word_piece_json() {
  return {{"added_tokens", Json::array()},
          {"normalizer", {{"type", "BertNormalizer"}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 5},
            {"vocab", {{"[UNK]", 0}, {"a", 1}, {"##b", 2}, {"ab", 3}, {".", 4}}}}}};
}

Json unigram_json() {
  return {{"added_tokens", Json::array()},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab", Json::parse(R"([["<unk>", 0], ["a", -1.0], ["b", -1.5], ["ab", -2.0]])")}}}};
}

TEST(TokenizerJsonModels, WordPieceTakesTheLongestMatch) {
  const Tokenizer tokenizer = read(word_piece_json());
  EXPECT_EQ(tokenizer.encode("ab Abb. ax a bb"), (Ids{3, 3, 2, 4, 0, 1, 0}));
  EXPECT_EQ(tokenizer.encode("abbbb abbbbb"), (Ids{3, 2, 2, 2, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 2, 4, 1}), "abb. a");
  Json json = word_piece_json();
  json["model"]["vocab"].erase("[UNK]");
  try {
    read(json).encode("ab xyz");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), testing::HasSubstr("the word \"xyz\" has no token"));
  }
  json["model"].erase("unk_token");
  expect_error(json, ErrorKind::kDamaged, "\"unk_token\" is missing");
  json = word_piece_json();
  json["model"]["max_input_chars_per_word"] = 1001;
  expect_error(json, ErrorKind::kUser, "max_input_chars_per_word 1001");
}

TEST(TokenizerJsonModels, UnigramTakesTheBestSum) {
  Json json = unigram_json();
  EXPECT_EQ(read(json).encode("abaxyb"), (Ids{3, 1, 0, 2}));
  // A missing decoder puts spaces between tokens.
  EXPECT_EQ(read(json).decode(Ids{3, 1}), "ab a");
  json["model"]["vocab"][3][1] = -2.6;
  EXPECT_EQ(read(json).encode("ab"), (Ids{1, 2}));
  json["model"]["vocab"].push_back(Json::array({"xy", -50.0}));  // of two unknown characters
  EXPECT_EQ(read(json).encode("xy"), (Ids{4}));
  json["model"]["unk_id"] = nullptr;
  EXPECT_THROW(read(json).encode("axb"), Error);
  json["model"]["unk_id"] = 5;
  expect_error(json, ErrorKind::kDamaged, "model.unk_id: 5 is outside");
  json["model"]["vocab"][1] = Json::array({"a"});
  expect_error(json, ErrorKind::kDamaged, "model.vocab[1]");
  json["model"]["vocab"][1] = Json::array({"b", 1.0});
  expect_error(json, ErrorKind::kDamaged, "there twice");
  json["model"]["vocab"] = Json::object();
  expect_error(json, ErrorKind::kDamaged, "model.vocab: must be an array");
}

TEST(TokenizerJsonModels, ACharsmapThatIsNoneIsRefused) {
  for (const char* map : {"A", "A===", "****", "AAAA"}) {
    Json json = word_piece_json();
    json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", map}};
    expect_error(json, ErrorKind::kDamaged, "precompiled_charsmap");
  }
}

// To the library, which rounds twice, the two scores are one: then the longer token wins. Read to
// the last bit, "a" and "b" would.
TEST(TokenizerJsonModels, UnigramReadsScoresAsTheLibraryDoes) {
  Json json = unigram_json();
  json["model"]["vocab"] = Json::parse(
      R"([["<unk>", 0], ["a", -3.7074916016738158], ["b", 0], ["ab", -3.707491601673816]])");
  EXPECT_EQ(read(json).encode("ab"), (Ids{3}));
}

// Of the library: Tokenizer.from_file("unigram.json").encode(text).ids.
TEST(TokenizerJsonModels, ACharsmapReplacesShortGraphemesByTheirShortestRule) {
  const Tokenizer tokenizer = Tokenizer::load(text::testing::testdata() / "unigram.json");
  for (const auto& [text, ids] : std::map<std::string, Ids>{
           {"Q\u0301", {3, 2}},                          // K, and not the rule for both
           {"Q\u0302", {3, 2}},                          // K: the mark is lost
           {"Q\u0301\u0301\u0301", {3, 2, 45, 45, 45}},  // 7 bytes: each by itself
           {"e\u0301", {3, 124}},
           {"the\u0301", {3, 27, 124}},
           {"\uFB01\u00BD", {41, 15, 131, 100, 78}},
           {"a\r\nb", {36, 3, 55}},
           {"a\u200Bb", {36, 55}},
           {"\u3000x\u3000", {3, 199}},
           {"\uFF71\u0301", {3, 2}}}) {
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
  }
}

TEST(TokenizerJsonModels, NoDamageCrashesThem) {
  const std::string texts[] = {word_piece_json().dump(), unigram_json().dump()};
  std::mt19937 rng(5);
  for (int round = 0; round < 400; ++round) {
    std::string bad = texts[round % 2];
    for (int i = 0; i < 2; ++i) bad[rng() % bad.size()] = static_cast<char>(rng() % 128);
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(bad, "t.json");
      const Ids ids = tokenizer.encode("ab the \xFF. abbb");
      (void)tokenizer.decode(ids);
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
}

}  // namespace
}  // namespace atl
