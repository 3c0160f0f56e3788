#include "atoll/text/new_tokenizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(ByteTokenizer, AnIdIsAByte) {
  const Tokenizer tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.encode("a\xFFé"), (Ids{97, 255, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer.decode(Ids{97, 255}), "a\xFF");
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>"), (Ids{97, 256}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", {.parse_special = false}).size(), 13U);
}

TEST(CharTokenizer, IdsFollowCodePoints) {
  const std::vector<std::string_view> texts = {"b😀a\n", "é a"};
  const Tokenizer tokenizer = make_char_tokenizer(texts);
  EXPECT_EQ(tokenizer.vocab_size(), 6);  // \n, space, a, b, é, 😀
  EXPECT_EQ(tokenizer.encode("😀 ab\né"), (Ids{5, 1, 2, 3, 0, 4}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 5, 1}), " 😀 ");
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json(), "t.json");
  EXPECT_EQ(again.encode("ba"), (Ids{3, 2}));
}

TEST(CharTokenizer, UnknownCharactersAreNamedWithTheirPosition) {
  const std::string_view text = "ab";
  const Tokenizer tokenizer = make_char_tokenizer({&text, 1});
  const std::string letters(100, 'a');
  EXPECT_THAT(error_of([&] { tokenizer.encode("abé"); }),
              testing::HasSubstr("the character \"é\" (U+00E9) at byte 2 of the text"));
  EXPECT_THAT(error_of([&] { tokenizer.encode(letters + "z"); }),
              testing::HasSubstr("U+007A) at byte 100 of"));
  EXPECT_THAT(error_of([&] { tokenizer.encode("a\xFF"); }),
              testing::HasSubstr("the byte 0xff, which is not UTF-8, at byte 1"));
  Ids ids = {7};
  TokenEncoder encoder(tokenizer);
  EXPECT_THROW(encoder.encode("aéb", ids), Error);
  ids.clear();
  encoder.encode("ab", ids);
  EXPECT_EQ(ids, (Ids{0, 1}));
}

TEST(CharTokenizer, AnUnkTokenTakesUnknownCharacters) {
  const std::string_view text = "ab";
  auto json = nlohmann::json::parse(make_char_tokenizer({&text, 1}).to_json());
  json["model"]["vocab"]["<?>"] = 2;
  json["model"]["unk_token"] = "<?>";
  EXPECT_EQ(Tokenizer::from_json(json.dump(), "t.json").encode("aéébé"), (Ids{0, 2, 2, 1, 2}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(Tokenizer::from_json(json.dump(), "t.json").encode("aéébé"), (Ids{0, 2, 1, 2}));
}

TEST(CharTokenizer, TextsMustHaveCharacters) {
  const std::vector<std::string_view> bad = {"fine", "a\xC3"};
  EXPECT_THAT(error_of([&] { make_char_tokenizer(bad); }),
              testing::HasSubstr("text 1: byte 1 (0xc3) is not UTF-8"));
  const std::vector<std::string> names = {"a.txt", "b.txt"};
  EXPECT_THAT(error_of([&] { make_char_tokenizer(bad, names); }),
              testing::HasSubstr("b.txt: byte 1 (0xc3) is not UTF-8"));
  EXPECT_THAT(error_of([] { make_char_tokenizer({}); }), testing::HasSubstr("without characters"));
}

TEST(NewTokenizers, SpecialTokensAtBytesThatAreTextAreText) {
  const std::vector<std::string> special = {"<|end|>"};
  const Tokenizer tokenizer = make_byte_tokenizer(special);
  const std::string text = "<|end|>a<|end|>";
  const std::int32_t end = *tokenizer.id_of("<|end|>");
  const std::vector<std::size_t> second = {8};
  const auto ids = tokenizer.encode(text, {.literal = second});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  EXPECT_EQ(ids.front(), end);
  EXPECT_EQ(ids.size(), 9U);
  EXPECT_EQ(tokenizer.decode(ids), text);
  const std::vector<std::size_t> both = {0, 8};
  EXPECT_EQ(tokenizer.encode(text, {.literal = both}),
            tokenizer.encode(text, {.parse_special = false}));
  EXPECT_EQ(tokenizer.find_special(text, 1), (std::pair<std::size_t, std::size_t>(8, 15)));
  EXPECT_EQ(tokenizer.find_special(text, 9), std::nullopt);
}

}  // namespace
}  // namespace atl
