#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "atoll/base/error.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/tokenizer.h"

namespace atl {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

// A valid file to change: 1 special, 256 bytes, and merges to "the" and "Ġthe".
Json valid_json() {
  const std::string_view text = "the the the";
  return Json::parse(train_bpe({&text, 1}, {.vocab_size = 260}).to_json());
}

Tokenizer read(const Json& json) {
  return Tokenizer::from_json(json.dump(), "t.json");
}

void expect_error(const Json& json, ErrorKind kind, const std::string& message) {
  try {
    read(json);
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith("t.json: "));
    EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

// Sets the value at `pointer` and expects the file to be refused with `message`.
void expect_refused(const char* pointer, const Json& value, const std::string& message) {
  Json json = valid_json();
  json[Json::json_pointer(pointer)] = value;
  expect_error(json, ErrorKind::kUser, message);
}
void expect_damaged(const char* pointer, const Json& value, const std::string& message) {
  Json json = valid_json();
  json[Json::json_pointer(pointer)] = value;
  expect_error(json, ErrorKind::kDamaged, message);
}

// A BPEDecoder's suffix is a space, but for the last token of a text.
TEST(TokenizerJson, DecodersThatLookAtNeighboursSeeThem) {
  Json json = {{"added_tokens", Json::array()},
               {"model", {{"type", "WordLevel"}, {"unk_token", "a"}, {"vocab", Json::object()}}},
               {"decoder", {{"type", "BPEDecoder"}, {"suffix", "_"}}}};
  json["model"]["vocab"] = {{"a", 0}, {"b_", 1}, {"_", 2}, {"c__", 3}};
  const auto decoded = [&](const std::vector<std::int32_t>& ids) {
    return Tokenizer::from_json(json.dump(), "t.json").decode(ids);
  };
  EXPECT_EQ(decoded({0, 1, 1, 2, 3, 3}), "ab b  c  c");
  EXPECT_EQ(decoded({1, 0, 2}), "b a");
  json["model"]["vocab"]["d_e"] = 4;
  expect_error(json, ErrorKind::kUser, "it is within \"d_e\"");
  json["decoder"]["suffix"] = "";
  expect_error(json, ErrorKind::kUser, "BPEDecoder without a suffix");
  json["decoder"] = {
      {"type", "CTC"}, {"pad_token", "a"}, {"word_delimiter_token", "_"}, {"cleanup", false}};
  EXPECT_EQ(decoded({1, 1, 0, 1, 2, 0, 0}), "b_b__") << "delimiters are spaces with cleanup alone";
  json["decoder"]["cleanup"] = true;
  EXPECT_EQ(decoded({1, 1, 0, 1, 2, 0, 0}), "b b  ");
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}};
  json["decoder"] = {{"type", "Sequence"}, {"decoders", {replace, json["decoder"]}}};
  expect_error(json, ErrorKind::kUser, "CTC after another step");
}

TEST(TokenizerJson, WhatWasReadGoesBackByteForByte) {
  const std::string text = "  " + valid_json().dump(7) + "\n\n";
  EXPECT_EQ(Tokenizer::from_json(text, "t.json").to_json(), text);
}

TEST(TokenizerJson, BothNotationsOfMergesMeanTheSame) {
  Json json = valid_json();
  const Ids expected = read(json).encode("the the");
  EXPECT_EQ(expected.size(), 2U);
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  EXPECT_EQ(read(json).encode("the the"), expected);
}

TEST(TokenizerJson, RefusesWhatWouldChangeTheResultByName) {
  expect_refused("/version", "2.0", "version");
  expect_refused("/novelty", 1, "the key \"novelty\"");
  expect_refused("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Novel"}}}}},
                 "Novel");
  expect_refused("/pre_tokenizer", {{"type", "Sentences"}}, "Sentences");
  expect_refused("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}, "a FixedLength of 0");
  expect_refused("/pre_tokenizer/extra", true, "the key \"extra\"");
  expect_refused("/decoder", nullptr, "decoder has the type null");
  expect_refused("/decoder", {{"type", "WordPiece"}}, "WordPiece");
  expect_refused("/model/type", "Bigram", "Bigram");
  expect_refused("/decoder", {{"type", "CTC"}}, "CTC");
  const Json split = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}};
  expect_refused("/pre_tokenizer",
                 {{"type", "Sequence"}, {"pretokenizers", {split, {{"type", "ByteLevel"}}}}},
                 "the behavior Sideways");
}

// SmolLM2's vocabulary lacks bytes that its training text did not have.
TEST(TokenizerJson, AByteWithoutATokenIsRefusedOnlyWhereATextHasIt) {
  Json json = valid_json();
  json["model"]["vocab"].erase("Ā");
  const Tokenizer tokenizer = read(json);
  EXPECT_EQ(tokenizer.encode("ab"), read(valid_json()).encode("ab"));
  try {
    tokenizer.encode(std::string_view("ab\0", 3));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_NE(std::string(error.what()).find("U+0000"), std::string::npos) << error.what();
  }
}

// As SentencePiece's vocabularies look after conversion.
Json converted_json() {
  Json vocab = {{"<unk>", 0}, {"▁", 1}, {"a", 2}, {"▁a", 3}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 4 + byte;
  const Json space = {{"String", "▁"}};
  return {
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", space}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", Json::array({Json::array({"▁", "a"})})}}}};
}

TEST(TokenizerJson, ByteFallbackSpellsUnknownCharactersAndBadBytes) {
  const Tokenizer tokenizer = read(converted_json());
  EXPECT_EQ(tokenizer.encode("a aé\xFF"), (Ids{3, 3, 4 + 0xC3, 4 + 0xA9, 4 + 0xFF}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 3, 4 + 0xFF}), "a a\xFF");
  EXPECT_EQ(tokenizer.token_bytes(3), " a");
  EXPECT_EQ(tokenizer.token_bytes(4 + 0xFF), "\xFF");
}

TEST(TokenizerJson, CharacterModelsRefuseWhatTheyCannotHonour) {
  const auto with = [](const char* pointer, const Json& value) {
    Json json = converted_json();
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  Json no_byte = converted_json();
  no_byte["model"]["vocab"].erase("<0x41>");
  expect_error(no_byte, ErrorKind::kUser, "no token for byte 0x41 (\"<0x41>\")");
  expect_error(with("/model/unk_token", "<no>"), ErrorKind::kDamaged, "has no \"<no>\"");
  expect_error(with("/model/fuse_unk", 1), ErrorKind::kDamaged, "\"fuse_unk\"");
  expect_error(with("/decoder/decoders/2", {{"type", "ByteFallback"}}), ErrorKind::kUser,
               "Strip between ByteFallback and Fuse");
  expect_error(with("/decoder/decoders/3/stop", 1), ErrorKind::kUser, "a Strip");
  expect_error(with("/decoder/decoders/3/content", "▁"), ErrorKind::kUser, "an ASCII character");
  expect_error(with("/decoder/decoders/3", {{"type", "Replace"}}), ErrorKind::kUser,
               "Replace after Fuse");
  expect_error(with("/model/end_of_word_suffix", "</w>"), ErrorKind::kUser,
               "byte_fallback with continuing_subword_prefix or end_of_word_suffix");
  expect_error(with("/pre_tokenizer/replacement", "ab"), ErrorKind::kDamaged, "one character");
  expect_error(with("/pre_tokenizer/prepend_scheme", "last"), ErrorKind::kUser,
               "prepend_scheme last");
  expect_error(with("/pre_tokenizer/add_prefix_space", false), ErrorKind::kUser,
               "add_prefix_space false with prepend_scheme first");
  const Json spaces = with("/pre_tokenizer/split", true)["pre_tokenizer"];
  expect_error(with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {spaces, spaces}}}),
               ErrorKind::kUser, "more than one step that changes the text");
  expect_error(
      with("/normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}}),
      ErrorKind::kDamaged, "the pattern is empty");
}

TEST(TokenizerJson, DamageIsNamedByPlaceAndValue) {
  expect_damaged("/model/vocab", Json::array(), "model.vocab");
  expect_damaged("/model/vocab/a", 4294967296, "model.vocab[\"a\"]: 4294967296 is not a token id");
  expect_damaged("/model/vocab/a", -3, "-3 is not a token id");
  expect_damaged("/model/vocab/a", 1.5, "1.5 is not a token id");
  expect_damaged("/model/vocab/a", 2000000000, "outside 0 to");
  expect_damaged("/model/vocab/a", 16777215, "outside 0 to");  // a table of 700 MB
  expect_damaged("/model/vocab/a", 12, "share the id 12");
  expect_damaged("/model/merges/0", Json::array({"t", "nope"}), "needs the token \"nope\"");
  expect_damaged("/model/merges/0", Json::array({"q", "j"}), "needs the token \"qj\"");
  expect_damaged("/model/merges/1", "a b c", "model.merges[1]");
  expect_damaged("/model/merges/1", Json::array({"a"}), "model.merges[1]");
  expect_damaged("/model/ignore_merges", "yes", "\"ignore_merges\" must be true or false");
  Json without = valid_json();
  without.erase("model");
  expect_error(without, ErrorKind::kDamaged, "the key \"model\" is missing");
  for (const char* key : {"vocab", "merges"}) {
    Json json = valid_json();
    json["model"].erase(key);
    expect_error(json, ErrorKind::kDamaged, fmt::format("model: the key \"{}\" is missing", key));
  }
  expect_error(Json::array(), ErrorKind::kDamaged, "must be an object");
  EXPECT_THROW(Tokenizer::from_json("", "t.json"), Error);
  EXPECT_THROW(Tokenizer::from_json("{\"model\": \xFF}", "t.json"), Error);
}

TEST(TokenizerJson, NoDamageCrashesIt) {
  const std::string texts[] = {valid_json().dump(), converted_json().dump()};
  std::mt19937 rng(5);
  for (int round = 0; round < 400; ++round) {
    std::string bad = texts[round / 4 % 2];
    for (int i = 0; i < 3; ++i) bad[rng() % bad.size()] = static_cast<char>(rng() % 128);
    if (round % 4 == 0) bad.resize(rng() % bad.size());
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(bad, "t.json");
      const Ids ids = tokenizer.encode("the \xFF<|endoftext|>");
      (void)tokenizer.decode(ids);
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
}

TEST(TokenizerJson, TemplatesAddTheirTokensWhenAsked) {
  Json json = valid_json();
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "end", "type_id": 0}}],
       "pair": [],
       "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["x"]},
                          "end": {"id": "end", "ids": [3, 4], "tokens": ["x", "y"]}}}]})");
  const Tokenizer tokenizer = read(json);
  const std::int32_t the = *tokenizer.id_of("the");
  EXPECT_EQ(tokenizer.encode("the"), (Ids{the}));
  EXPECT_EQ(tokenizer.encode("the", {.add_special = true}), (Ids{0, the, 3, 4}));
}

TEST(TokenizerJson, IgnoreMergesTakesWholeWords) {
  Json json = valid_json();
  json["model"]["vocab"]["qqq"] = 260;
  EXPECT_EQ(read(json).encode("qqq").size(), 3U);
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(read(json).encode("qqq"), (Ids{260}));
}

TEST(TokenizerJson, AddedTokensTakeWhiteSpaceAlong) {
  Json json = valid_json();
  const auto add = [&](int id, const char* content, bool lstrip, bool rstrip) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", content},
                                    {"lstrip", lstrip},
                                    {"rstrip", rstrip},
                                    {"special", true}});
  };
  add(260, "<l>", true, false);
  add(261, "<r>", false, true);
  add(262, "<r>x", false, false);
  const Tokenizer tokenizer = read(json);
  const std::int32_t the = *tokenizer.id_of("the");
  EXPECT_EQ(tokenizer.encode("the \u3000\n<l>the"), (Ids{the, 260, the}));
  EXPECT_EQ(tokenizer.encode("the<r> \u3000\nthe"), (Ids{the, 261, the}));
  EXPECT_EQ(tokenizer.encode("<r> <l>"), (Ids{261, 260}));
  EXPECT_EQ(tokenizer.encode("<r>x"), (Ids{262}));  // the longest
}

TEST(TokenizerJson, NormalizersRunBeforeWordsAndSkipBadBytes) {
  Json json = valid_json();
  json["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = read(json);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\u0301 \xFF\u0301")), "é \xFF\u0301");
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKD"}}}}};
  EXPECT_EQ(read(json).decode(read(json).encode("ﬁé")), "fie\u0301");
}

TEST(TokenizerJson, WhatIsThereTwice) {
  const std::string text = valid_json().dump();
  const auto with_before = [&](const std::string& what, const std::string& before) {
    std::string changed = text;
    const std::size_t at = changed.find(before);
    EXPECT_NE(at, changed.npos) << before;
    return changed.insert(at, what);
  };
  // Of a key the last counts ...
  const Tokenizer expected = read(valid_json());
  for (const std::string& twice :
       {with_before(R"("vocab":{"no":1},)", R"("vocab")"),
        with_before(R"("vocab":[],)", R"("vocab")"),
        with_before(R"("merges":["n o"],)", R"("merges")"),
        with_before(R"("model":{"vocab":{"no":1},"merges":["n o"]},)", R"("model")")}) {
    const Tokenizer tokenizer = Tokenizer::from_json(twice, "t.json");
    EXPECT_EQ(tokenizer.encode("that is the thing"), expected.encode("that is the thing"));
    EXPECT_EQ(tokenizer.vocab_size(), expected.vocab_size());
  }
  // ... and so it does of a token.
  const Tokenizer twice = Tokenizer::from_json(with_before(R"("a":1000,)", R"("a":)"), "t.json");
  EXPECT_EQ(twice.encode("a"), expected.encode("a"));
  EXPECT_THROW((void)twice.token_bytes(1000), Error);
}

TEST(TokenizerJson, WhatChangesNoIdIsReadPast) {
  const Ids expected = read(valid_json()).encode("that is the thing");
  for (const auto& [pointer, value] : std::map<std::string, Json>{
           {"/truncation", {{"max_length", 1}}},
           {"/padding", {{"strategy", {{"Fixed", 9}}}}},
           {"/model/dropout", 0.1},
           {"/model/novelty", nullptr},
           {"/novelty", false},
           {"/pre_tokenizer/novelty", ""},
           {"/post_processor",
            {{"type", "BertProcessing"}, {"sep", {"x", 1}}, {"cls", {"y", 2}}}}}) {
    Json json = valid_json();
    json[Json::json_pointer(pointer)] = value;
    EXPECT_EQ(read(json).encode("that is the thing"), expected) << pointer;
  }
}

TEST(TokenizerJson, BertAndRobertaPutOneTokenBeforeAndOneAfter) {
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    const Json bert = {{"type", type}, {"sep", {"x", 1}}, {"cls", {"y", 2}}};
    Json json = valid_json();
    json["post_processor"] = bert;
    EXPECT_EQ(read(json).tokens_before(), (Ids{2}));
    EXPECT_EQ(read(json).tokens_after(), (Ids{1}));
    json["post_processor"] = {{"type", "Sequence"}, {"processors", {bert, bert}}};
    expect_error(json, ErrorKind::kUser, std::string("a second one that adds tokens, ") + type);
    expect_damaged("/post_processor", {{"type", type}, {"sep", {"x", 1}}}, "\"cls\" is missing");
    expect_damaged("/post_processor", {{"type", type}, {"sep", {1}}, {"cls", {"y", 2}}}, "sep");
  }
}

// Of the library: Tokenizer.from_str(...).encode(...).ids.
TEST(TokenizerJson, AddedTokensTakeTheIdsThatTheLibraryGivesThem) {
  Json json = valid_json();
  const auto added = [](int id, const char* content, bool lstrip, bool special) {
    return Json{{"id", id}, {"content", content}, {"lstrip", lstrip}, {"special", special}};
  };
  json["added_tokens"].push_back(added(300, "<z>", false, true));  // behind a gap
  json["added_tokens"].push_back(added(301, "", false, false));
  json["added_tokens"].push_back(added(5, "<z>", true, false));  // there twice
  json["added_tokens"].push_back(added(5, "<y>", false, false));
  json["added_tokens"].push_back(added(9, "the", false, false));  // in the vocabulary
  const Tokenizer tokenizer = read(json);
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_EQ(tokenizer.id_of("<z>"), 260);
  EXPECT_EQ(tokenizer.id_of("<y>"), 261);
  const std::int32_t the = *read(valid_json()).id_of("the");
  EXPECT_EQ(tokenizer.encode("the <z><y>"), (Ids{the, 260, 261}));
  EXPECT_TRUE(tokenizer.is_special(260));
}

TEST(TokenizerJson, SingleWordTokensAreFoundBesideNoWordCharacter) {
  Json json = valid_json();
  json["added_tokens"].push_back({{"id", 260}, {"content", "<z>"}, {"single_word", true}});
  const Tokenizer tokenizer = read(json);
  const auto found = [&](std::string_view text) {
    const Ids ids = tokenizer.encode(text);
    return std::count(ids.begin(), ids.end(), 260);
  };
  for (const char* text : {"<z>", " <z> ", "-<z>-", "\xFF<z>\xFF", "<z>²", "\xE4\xB8<z>"}) {
    EXPECT_EQ(found(text), 1) << text;
  }
  for (const char* text :
       {"a<z>", "<z>a", "é<z>", "<z>\u0301", "<z>\u200d", "<z>٣", "_<z>", "<z>中"}) {
    EXPECT_EQ(found(text), 0) << text;
  }
  EXPECT_EQ(found("<z><z>"), 2);
  EXPECT_EQ(found("a<z> <z>"), 1);
}

TEST(TokenizerJson, RefusesNestingThatWouldOverflowTheStack) {
  for (const std::string open : {"[", R"({"type":"Sequence","normalizers":[)"}) {
    std::string text = R"({"version":)";
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_THROW(Tokenizer::from_json(text, "t.json"), Error);
  }
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  try {
    Tokenizer::from_json(R"({"version":)" + deep + "}", "t.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), testing::HasSubstr("nested 200001 levels deep"));
  }
}

// One look at the text for each of the brackets would take hours, and ctest ends it before.
TEST(TokenizerJson, RefusesManyBracketsAtTheLimitOfNesting) {
  std::string text = R"({"version":)" + std::string(63, '[');
  for (int i = 0; i < 1'000'000; ++i) text += "0,";
  text += "0" + std::string(63, ']') + "}";
  EXPECT_THROW(Tokenizer::from_json(text, "t.json"), Error);
}

TEST(TokenizerJson, WhatOneOfTwoLibrariesReadsIsNamed) {
  const std::string text = valid_json().dump();
  std::string large = text;
  large.insert(large.find(R"("vocab":{)") + 9, R"("large":18446744073709551616,)");
  for (const auto& [bad, words] :
       {std::pair<std::string, std::string>("\xEF\xBB\xBF" + text, "byte order mark; remove it"),
        {large, "a number does not fit 64 bits"},
        {text + '\0', "t.json: no"},
        {text.substr(0, text.size() - 1), "not valid JSON: "}}) {
    try {
      Tokenizer::from_json(bad, "t.json");
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }
}

TEST(TokenizerJson, ALfsPointerIsNamed) {
  for (const char* file : {"tokenizer.json", "tokenizer.model"}) {
    try {
      Tokenizer::from_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", file,
                            "t");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), testing::HasSubstr("t is a Git LFS pointer"));
    }
  }
}

TEST(TokenizerJson, RefusesATemplateWithAnIdThatTheVocabularyLacks) {
  const Json piece = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  for (const std::int32_t id : {260, 2000000000}) {
    expect_damaged("/post_processor",
                   {{"type", "TemplateProcessing"},
                    {"single", {piece, text}},
                    {"special_tokens", {{"x", {{"id", "x"}, {"ids", {id}}}}}}},
                   fmt::format("no token of id {}", id));
  }
}

TEST(TokenizerJson, EndOfTextIsFoundByNameOrByBeingAlone) {
  Json json = valid_json();
  json["model"]["vocab"].erase("<|endoftext|>");
  json["model"]["vocab"]["<odd name>"] = 0;
  json["added_tokens"][0]["content"] = "<odd name>";
  EXPECT_EQ(read(json).end_of_text(), 0);
  json["added_tokens"].push_back({{"id", 260}, {"content", "</s>"}, {"special", true}});
  EXPECT_EQ(read(json).end_of_text(), 260);
  json["added_tokens"][1]["content"] = "<other>";
  EXPECT_EQ(read(json).end_of_text(), std::nullopt);
}

}  // namespace
}  // namespace atl
