// Special tokens that a tokenizer gets beside those that it has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/tokenizer_json/tokenizer_json_tokens.h"

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::HasSubstr;

// 1 special token, 256 bytes, and merges to "the" and "Ġthe".
Tokenizer trained() {
  const std::string_view text = "the the the";
  return train_bpe({&text, 1}, {.vocab_size = 260});
}

std::string error_of(const std::vector<std::string>& tokens) {
  try {
    trained().with_special_tokens(tokens);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(MoreSpecialTokens, GetTheNextIds) {
  const Tokenizer old = trained();
  const Tokenizer more = old.with_special_tokens(std::vector<std::string>{"<|a|>", "<|\"b\"|>"});
  EXPECT_EQ(more.vocab_size(), old.vocab_size() + 2);
  EXPECT_EQ(more.id_of("<|a|>"), 260);
  EXPECT_TRUE(more.is_special(261));
  EXPECT_EQ(more.encode("the<|\"b\"|> the<|a|>"), (Ids{259 - 1, 261, 259, 260}));
  EXPECT_EQ(more.decode(Ids{260, 261}), "<|a|><|\"b\"|>");
  EXPECT_EQ(more.end_of_text(), old.end_of_text());
  // What it was before stays byte for byte, round the new tokens.
  const std::string before = old.to_json();
  const std::size_t same =
      std::mismatch(before.begin(), before.end(), more.to_json().begin(), more.to_json().end())
          .first -
      before.begin();
  EXPECT_TRUE(more.to_json().ends_with(before.substr(same + 1))) << more.to_json();
}

TEST(MoreSpecialTokens, ThoseThatAreThereStay) {
  const Tokenizer old = trained();
  EXPECT_EQ(old.with_special_tokens(std::vector<std::string>{"<|endoftext|>"}).to_json(),
            old.to_json());
  const Tokenizer again = old.with_special_tokens(std::vector<std::string>{"<|a|>"});
  EXPECT_EQ(again.with_special_tokens(std::vector<std::string>{"<|a|>"}).to_json(),
            again.to_json());
  // A token of the vocabulary becomes a special one, with its id.
  const Tokenizer the = old.with_special_tokens(std::vector<std::string>{"the"});
  EXPECT_EQ(the.vocab_size(), old.vocab_size());
  EXPECT_TRUE(the.is_special(*old.id_of("the")));
}

TEST(MoreSpecialTokens, AFileWithoutAnyGetsAList) {
  const text::AddedToken token = {.id = 7, .content = "<|a|>", .special = true};
  for (const char* json : {R"({"model": {"added_tokens": 1}, "version": "\"added_tokens\": ["})",
                           R"({"added_tokens" : [ ], "model": 2})",
                           R"({"model": 2, "added_tokens":[{"id": 1, "content": "]\\"}]})"}) {
    const auto made =
        nlohmann::json::parse(text::with_added_tokens(json, std::span(&token, 1), "t.json"));
    EXPECT_EQ(made["added_tokens"].back()["content"], "<|a|>") << json;
    const auto old = nlohmann::json::parse(json);
    EXPECT_EQ(made["model"], old["model"]) << json;
    EXPECT_EQ(made["added_tokens"].size(), 1 + old.value("added_tokens", nlohmann::json()).size());
  }
  EXPECT_THROW(text::with_added_tokens("{\"added_tokens\": 3}", std::span(&token, 1), "t"), Error);
}

TEST(MoreSpecialTokens, RefusesTextsThatAreNone) {
  EXPECT_THAT(error_of({""}), HasSubstr("empty"));
  EXPECT_THAT(error_of({"a", "\xff"}), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of({"<|a|>", "<|a|>"}), HasSubstr("twice"));
}

}  // namespace
}  // namespace atl
