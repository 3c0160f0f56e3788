// SentencePiece models, trained here by the SentencePiece library and compared with it.

#include "atoll/text/sentence_piece/sentence_piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <filesystem>
#include <map>
#include <random>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/utf8.h"

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;
using Options = std::unordered_map<std::string, std::string>;

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) lines_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

const std::map<std::string, Options>& kinds() {
  static const std::map<std::string, Options> kinds = {
      {"llama",
       {{"model_type", "bpe"},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"remove_extra_whitespaces", "false"},
        {"split_digits", "true"},
        {"allow_whitespace_only_pieces", "true"},
        {"user_defined_symbols", "[INST],camel"},
        {"vocab_size", "600"}}},
      {"gemma",
       {{"model_type", "bpe"},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"add_dummy_prefix", "false"},
        {"remove_extra_whitespaces", "false"},
        {"control_symbols", "<mask>"},
        {"user_defined_symbols", "<pad>,\t\t"},
        {"vocab_size", "600"}}},
      {"bpe_nfkc", {{"model_type", "bpe"}, {"vocab_size", "400"}}},
      {"t5",
       {{"model_type", "unigram"},
        {"user_defined_symbols", "<extra>,word"},
        {"vocab_size", "400"}}},
      {"unigram_bytes",
       {{"model_type", "unigram"},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "nfkc_cf"},
        {"vocab_size", "600"}}},
      {"unigram_plain",
       {{"model_type", "unigram"},
        {"normalization_rule_name", "identity"},
        {"add_dummy_prefix", "false"},
        {"vocab_size", "400"}}}};
  return kinds;
}

std::string train(Options options) {
  static const std::string training = read_file(text::testing::testdata() / "training.txt");
  options["hard_vocab_limit"] = "false";
  options["character_coverage"] = "0.98";
  options["minloglevel"] = "3";
  options["num_threads"] = "1";
  Lines lines(training);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  if (!status.ok()) throw user_error("training failed: {}", status.ToString());
  return model;
}

// What the library is compared on: bytes that are not UTF-8 become U+FFFD one by one, as it does.
std::string each_byte_replaced(std::string_view raw) {
  std::string out;
  while (!raw.empty()) {
    const auto step = text::utf8_step(raw);
    const bool valid = step.kind == text::Utf8Kind::kValid;
    out += valid ? raw.substr(0, step.size) : text::kReplacementCharacter;
    raw.remove_prefix(valid ? step.size : 1);
  }
  return out;
}

class SentencePieceLibrary : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto status = library_.LoadFromSerializedProto(model_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  const std::string model_ = train(kinds().at(GetParam()));
  const Tokenizer tokenizer_ = Tokenizer::from_bytes(model_, "tokenizer.model", "test.model");
  sentencepiece::SentencePieceProcessor library_;
};

TEST_P(SentencePieceLibrary, GivesTheSameIdsAndTheSameText) {
  TokenEncoder encoder(tokenizer_);
  const bool fallback = kinds().at(GetParam()).contains("byte_fallback");
  Ids ids;
  for (const std::string& raw : text::testing::awkward_strings(5000, 2)) {
    const std::string text = fallback ? each_byte_replaced(raw) : raw;
    ids.clear();
    encoder.encode(text, ids, {.parse_special = false});
    std::vector<int> expected;
    ASSERT_TRUE(library_.Encode(text, &expected).ok());
    ASSERT_EQ(ids, expected) << testing::PrintToString(text);
    std::string decoded;
    ASSERT_TRUE(library_.Decode(expected, &decoded).ok());
    ASSERT_EQ(tokenizer_.decode(ids), decoded) << testing::PrintToString(text);
    StreamDecoder stream(tokenizer_);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    ASSERT_EQ(streamed + stream.finish(), text::testing::lossy(decoded));
  }
}

TEST_P(SentencePieceLibrary, AgreesOnWholeDocumentsAndTheVocabulary) {
  const std::string text = read_file(text::testing::testdata() / "training.txt");
  std::vector<int> expected;
  ASSERT_TRUE(library_.Encode(text, &expected).ok());
  EXPECT_EQ(tokenizer_.encode(text, {.parse_special = false}), expected);
  ASSERT_EQ(tokenizer_.vocab_size(), library_.GetPieceSize());
  for (int id = 0; id < library_.GetPieceSize(); ++id) {
    EXPECT_EQ(tokenizer_.id_of(library_.IdToPiece(id)), id);
    EXPECT_EQ(tokenizer_.is_special(id), library_.IsControl(id));
  }
  EXPECT_EQ(tokenizer_.end_of_text(), library_.eos_id());
}

TEST_P(SentencePieceLibrary, PartsGiveTheIdsOfTheWholeWhereverItIsCut) {
  std::string text = "  " + read_file(text::testing::testdata() / "training.txt") + " \n ";
  for (const std::string& raw : text::testing::awkward_strings(500, 5)) {
    text += each_byte_replaced(raw) + (raw.size() % 3 == 0 ? " " : "");
  }
  std::vector<int> expected;
  ASSERT_TRUE(library_.Encode(text, &expected).ok());
  text::testing::Random random(6);
  TokenEncoder encoder(tokenizer_);
  for (const std::size_t longest : {7, 700, 70000}) {
    Ids ids;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t size = std::min(rest.size(), 1 + random.below(longest));
      encoder.encode_part(rest.substr(0, size), /*last=*/false, ids);
      rest.remove_prefix(size);
    }
    encoder.encode_part("", /*last=*/true, ids);
    ASSERT_EQ(ids, expected) << longest;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceLibrary,
                         testing::Values("llama", "gemma", "bpe_nfkc", "t5", "unigram_bytes",
                                         "unigram_plain"),
                         [](const auto& info) { return info.param; });

const std::string& llama() {
  static const std::string model = train(kinds().at("llama"));
  return model;
}

Tokenizer read(std::string_view model) {
  return Tokenizer::from_bytes(model, "tokenizer.model", "m.model");
}

TEST(SentencePieceModel, ByteFallbackKeepsEveryByte) {
  const Tokenizer tokenizer = read(llama());
  for (const std::string& raw : text::testing::awkward_strings(2000, 3)) {
    if (raw.find("▁") != std::string::npos) continue;  // it means a space
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(raw, {.parse_special = false})), raw);
  }
}

TEST(SentencePieceModel, ControlPiecesAreMadeFromTextOnlyWhenAsked) {
  const Tokenizer tokenizer = read(llama());
  const std::int32_t bos = *tokenizer.id_of("<s>");
  const Ids parsed = tokenizer.encode("<s>the");
  EXPECT_EQ(parsed.front(), bos);
  EXPECT_EQ(Ids(parsed.begin() + 1, parsed.end()), tokenizer.encode("the"));
  const Ids plain = tokenizer.encode("<s>the", {.parse_special = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), bos), 0);
  EXPECT_EQ(tokenizer.decode(plain), "<s>the");
  Ids with_bos = tokenizer.encode("the");
  with_bos.insert(with_bos.begin(), bos);
  EXPECT_EQ(tokenizer.encode("the", {.add_special = true}), with_bos);
  EXPECT_EQ(tokenizer.decode(parsed, {.skip_special = true}), "the");
}

TEST(SentencePieceModel, FilesKeepTheirNameAndContent) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "atoll_sentence_piece";
  std::filesystem::create_directories(directory);
  write_file(directory / "tokenizer.model", llama());
  const Tokenizer tokenizer = Tokenizer::load(directory);
  EXPECT_EQ(tokenizer.file_name(), "tokenizer.model");
  EXPECT_EQ(tokenizer.file_content(), llama());
  EXPECT_THROW(tokenizer.to_json(), Error);
  EXPECT_EQ(Tokenizer::load(directory / "tokenizer.model").encode("the"), tokenizer.encode("the"));
  write_file(directory / "tokenizer.json", read_file(text::testing::testdata() / "byte.json"));
  EXPECT_EQ(Tokenizer::load(directory).file_name(), "tokenizer.json");
  EXPECT_THROW(Tokenizer::from_bytes("", "vocab.txt", "x"), Error);
  std::filesystem::remove_all(directory);
}

TEST(SentencePieceModel, TheConfigurationBesideItSaysWhatGoesRoundAText) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "atoll_text_frame";
  std::filesystem::create_directories(directory);
  write_file(directory / "tokenizer.model", llama());
  const auto config = [&](const std::string& json) {
    write_file(directory / "tokenizer_config.json", json);
    return Tokenizer::load(directory);
  };
  const Tokenizer plain = read(llama());
  const Ids bos = {*plain.id_of("<s>")};
  const Ids eos = {*plain.id_of("</s>")};
  EXPECT_EQ(plain.tokens_before(), bos);
  EXPECT_EQ(plain.tokens_after(), Ids());
  EXPECT_EQ(config("{}").tokens_before(), bos);
  EXPECT_EQ(config(R"({"add_bos_token": null})").tokens_before(), bos);
  const Tokenizer bare = config(R"({"add_bos_token": false})");
  EXPECT_EQ(bare.encode("the", {.add_special = true}), plain.encode("the"));
  EXPECT_EQ(config(R"({"add_bos_token": true})").tokens_before(), bos);
  const Tokenizer both = config(R"({"add_eos_token": true})");
  EXPECT_EQ(both.tokens_before(), bos);
  EXPECT_EQ(both.tokens_after(), eos);
  EXPECT_EQ(both.encode("", {.add_special = true}), (Ids{bos[0], eos[0]}));
  EXPECT_EQ(config(R"({"add_bos_token": true, "bos_token": {"content": "</s>"}})").tokens_before(),
            eos);
  EXPECT_EQ(plain.end_of_text(), eos[0]);
  EXPECT_EQ(config(R"({"eos_token": "<s>"})").end_of_text(), bos[0]);
  const auto problem = [&](const std::string& json) -> std::string {
    try {
      config(json);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  using testing::HasSubstr;
  EXPECT_THAT(problem(R"({"add_bos_token": 1})"), HasSubstr("\"add_bos_token\" must be true or"));
  EXPECT_THAT(problem(R"({"add_eos_token": true, "eos_token": "<end>"})"),
              HasSubstr("has no token \"<end>\""));
  EXPECT_THAT(problem("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(problem(std::string(100000, '[')), HasSubstr("nested more than 64 levels deep"));
  std::filesystem::remove_all(directory);
}

TEST(SentencePieceModel, AsATokenizerJsonItGivesTheSameIds) {
  for (const bool prefix : {true, false}) {
    Options options = kinds().at("llama");
    options.erase("user_defined_symbols");
    options["add_dummy_prefix"] = prefix ? "true" : "false";
    options["vocab_size"] = "1000";
    const Tokenizer model = read(train(options));
    const Tokenizer json = Tokenizer::from_json(model.to_json(), "converted");
    EXPECT_EQ(json.tokens_before(), model.tokens_before());
    EXPECT_EQ(json.end_of_text(), model.end_of_text());
    ASSERT_EQ(json.vocab_size(), model.vocab_size());
    for (const std::string& raw : text::testing::awkward_strings(5000, 4)) {
      const std::string text = text::testing::lossy(raw);
      for (const EncodeOptions how : {EncodeOptions{}, EncodeOptions{.parse_special = false}}) {
        const Ids ids = model.encode(text, how);
        ASSERT_EQ(json.encode(text, how), ids) << testing::PrintToString(text);
        ASSERT_EQ(json.decode(ids), model.decode(ids)) << testing::PrintToString(text);
      }
    }
    const std::string whole = read_file(text::testing::testdata() / "training.txt");
    EXPECT_EQ(json.encode(whole), model.encode(whole));
  }
}

TEST(SentencePieceModel, WhatNoTokenizerJsonSaysIsNamed) {
  const auto problem = [](const std::string& model) -> std::string {
    try {
      return read(model).to_json();
    } catch (const Error& error) {
      return error.what();
    }
  };
  using testing::HasSubstr;
  EXPECT_THAT(problem(llama()), HasSubstr("is a user-defined piece"));
  EXPECT_THAT(problem(train(kinds().at("bpe_nfkc"))), HasSubstr("it normalizes characters"));
  EXPECT_THAT(problem(train(kinds().at("t5"))), HasSubstr("its algorithm is Unigram"));
}

// A protocol buffer, field by field.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  return out + static_cast<char>(value);
}
std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string bytes(int field, std::string_view value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) +
         std::string(value);
}
std::string score(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string out = varint(2 << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(bits >> shift));
  return out;
}
std::string piece(std::string_view text, float value, int type) {
  return bytes(1, bytes(1, text) + score(value) + number(3, type));
}

void expect_error(const std::string& model, ErrorKind kind, const std::string& message) {
  try {
    read(model).encode("a text \xFF");
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith("m.model: "));
    EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

TEST(SentencePieceModel, UnusedPiecesFallApartIntoWhatTheyWereMergedFrom) {
  const std::string model = piece("<unk>", 0, 2) + piece("a", -5, 1) + piece("b", -6, 1) +
                            piece("c", -7, 1) + piece("ab", -1, 5) + piece("abc", -2, 5) +
                            piece("abcc", -3, 1) + bytes(2, number(3, 2)) +
                            bytes(3, number(3, 0) + number(4, 0));
  EXPECT_EQ(read(model).encode("ab"), (Ids{1, 2}));
  EXPECT_EQ(read(model).encode("abc"), (Ids{1, 2, 3}));
  EXPECT_EQ(read(model).encode("abcc"), (Ids{6}));
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  for (const char* text : {"ab", "abc", "abcc", "cabcab", "xxabxyc"}) {
    EXPECT_EQ(read(model).encode(text), library.EncodeAsIds(text)) << text;
  }
}

TEST(SentencePieceModel, DamageIsNamedByPlaceAndValue) {
  const std::string unk = piece("<unk>", 0, 2);
  const auto damaged = [&](const std::string& model, const std::string& message) {
    expect_error(model, ErrorKind::kDamaged, message);
  };
  damaged("", "0 of the type UNKNOWN");
  damaged(unk + piece("<unk2>", 0, 2), "2 of the type UNKNOWN");
  damaged(unk + piece("a", 0, 1) + piece("a", 0, 1), "pieces[2]: \"a\" is there twice");
  damaged(unk + piece("", 0, 1), "pieces[1]: the piece is empty");
  damaged(unk + piece("\xFF", 0, 1), "pieces[1]: the piece is not UTF-8");
  damaged(unk + piece("a", std::nanf(""), 1), "pieces[1]: the score nan is no number");
  damaged(unk + piece("a", 0, 9), "pieces[1]: the type 9 is unknown");
  damaged(unk + piece("<0xZZ>", 0, 6), "is no byte");
  damaged(unk + piece("<0x41>", 0, 6), "1 of the type BYTE, but byte_fallback is false");
  damaged(unk + bytes(2, number(35, 1)), "0 of the type BYTE, but byte_fallback is true");
  damaged(unk + varint(1 << 3 | 2) + varint(1000), "field 1 claims 1000 bytes of the 0");
  damaged(unk + varint(1 << 3 | 2) + varint(~0ULL), "claims 18446744073709551615 bytes");
  damaged(unk + "\x80", "in the middle of a number");
  damaged(unk + std::string(11, '\x80'), "more than 64 bits");
  damaged(unk + varint(1 << 3 | 3), "the unknown wire type 3");
  damaged(unk + varint(0) + varint(0), "0 is no field number");
  damaged(unk + number(1, 5), "has the wire type 0, not 2");
  damaged(unk + bytes(2, number(3, 7)), "trainer_spec: the model type 7 is unknown");
  damaged(unk + bytes(3, bytes(2, "abc")), "a trie of 0 bytes in a map of 3");
  damaged(unk + bytes(3, bytes(2, std::string("\xF0\0\0\0abcd", 8))), "a trie of 240 bytes");
  const auto refused = [&](const std::string& model, const std::string& message) {
    expect_error(model, ErrorKind::kUser, message);
  };
  refused(unk + bytes(2, number(3, 3)), "trainer_spec: the model type WORD is not supported");
  refused(unk + bytes(2, number(24, 1)), "treat_whitespace_as_suffix");
  refused(unk + bytes(3, number(9, 1)), "normalizer_spec: field 9");
  refused(unk + bytes(5, bytes(2, "x")), "denormalizer_spec: a charsmap");
  refused(unk + bytes(77, "x"), "field 77");
}

// A trie of two units that match the byte "a" and then say `leaf`.
std::string trie(std::uint32_t leaf, std::string_view replacements) {
  std::vector<std::uint32_t> units(256, 0);
  const auto offset = [](std::uint32_t value) { return value << 10; };
  units[0] = offset(1);
  units[1U ^ 'a'] = 'a' | (1U << 8) | offset(2);
  units[1U ^ 'a' ^ 2U] = leaf;
  std::string blob("\0\x04\0\0", 4);
  for (const std::uint32_t unit : units) {
    for (int shift = 0; shift < 32; shift += 8) blob.push_back(static_cast<char>(unit >> shift));
  }
  return blob.append(replacements);
}

TEST(CharsMap, WalksStayInsideTheFile) {
  using text::CharsMap;
  const std::string_view replacements("bc\0d\0", 5);
  const CharsMap map(trie(0x80000000U, replacements), "m");
  EXPECT_EQ(map.longest("ax").size, 1U);
  EXPECT_EQ(map.longest("ax").replacement, "bc");
  EXPECT_EQ(map.longest("x").size, 0U);
  EXPECT_EQ(map.longest("").size, 0U);
  EXPECT_EQ(CharsMap(trie(0x80000003U, replacements), "m").longest("a").replacement, "d");
  EXPECT_THROW(CharsMap(trie(0x80000005U, replacements), "m").longest("a"), Error);
  EXPECT_THROW(CharsMap(trie(0xFFFFFFFFU, replacements), "m").longest("a"), Error);
  EXPECT_THROW(CharsMap(trie(0x80000000U, std::string(2000, 'x')), "m").longest("a"), Error);
  std::mt19937 rng(4);
  for (int round = 0; round < 2000; ++round) {
    std::string blob = trie(0x80000000U, replacements);
    for (int i = 0; i < 20; ++i) blob[4 + rng() % (blob.size() - 4)] = static_cast<char>(rng());
    try {
      const CharsMap bad(blob, "m");
      for (const char* text : {"a", "ab", "aaaa", "\xFF"}) (void)bad.longest(text);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kDamaged);
    }
  }
}

TEST(SentencePieceModel, NoDamageCrashesIt) {
  const std::string small = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("▁a", -1, 1) +
                            piece("a", -2, 1) + piece("b", -2, 4) + piece("ab", -3, 5);
  const std::string models[] = {
      small + bytes(2, number(3, 2)) + bytes(3, bytes(2, trie(0x80000000U, "b"))),
      small + bytes(2, number(3, 1)) + bytes(3, number(3, 0))};
  std::mt19937 rng(5);
  for (int round = 0; round < 20000; ++round) {
    std::string bad = models[round % 2];
    const std::size_t head = std::min<std::size_t>(bad.size(), 160);
    for (int i = 0; i < 1 + round % 3; ++i) bad[rng() % head] = static_cast<char>(rng());
    if (round % 4 == 0) bad.resize(rng() % bad.size());
    try {
      const Tokenizer tokenizer = read(bad);
      const Ids ids = tokenizer.encode("aab b<s>\xFF a");
      (void)tokenizer.decode(ids);
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
}

}  // namespace
}  // namespace atl
