#include "atoll/data/jsonl/preference_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/data/testing.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

std::vector<PreferenceRow> rows_of(std::string_view content,
                                   PairKind kind = PairKind::kPreferences) {
  std::vector<PreferenceRow> rows;
  for_each_preference_row(content, "rows.jsonl", kind,
                          [&](const PreferenceRow& row) { rows.push_back(row); });
  return rows;
}

TEST(PreferenceRows, AreTextsWithAPrompt) {
  const auto rows = rows_of(R"({"prompt": "Q: ", "chosen": "yes", "rejected": "no"})");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].prompt, "Q: ");
  EXPECT_EQ(rows[0].first, "yes");
  EXPECT_EQ(rows[0].second, "no");
  EXPECT_EQ(rows[0].problem, "");
  const JsonlLine line = line_of(rows[0], rows[0].second);
  EXPECT_EQ(line.text, "Q: no");
  EXPECT_EQ(line.completion, 3U);
}

// As TRL's extract_prompt: a space before the place where they differ goes to the answers.
TEST(PreferenceRows, WhatAnswersBeginWithIsThePrompt) {
  const auto rows = rows_of(R"({"chosen": "Is it so? It is", "rejected": "Is it so? No"}
{"chosen": "täglich", "rejected": "töricht"}
{"chosen": "gone far", "rejected": "gone"})");
  EXPECT_EQ(rows[0].prompt, "Is it so?");
  EXPECT_EQ(rows[0].first, " It is");
  EXPECT_EQ(rows[0].second, " No");
  EXPECT_EQ(rows[1].prompt, "t");
  EXPECT_EQ(rows[1].first, "äglich");
  EXPECT_EQ(rows[2].prompt, "gone");
  EXPECT_EQ(rows[2].first, " far");
  EXPECT_EQ(rows[2].second, "");
}

TEST(PreferenceRows, AreConversationsWithOrWithoutAPrompt) {
  const std::string asked = R"({"role": "user", "content": "a"})";
  const std::string good = R"({"role": "assistant", "content": "d"})";
  const std::string bad = R"({"role": "assistant", "content": "e"})";
  const std::string before = asked + R"(, {"role": "assistant", "content": "b"}, )" + asked;
  const auto rows = rows_of(
      fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", before, good, bad) +
      fmt::format("\n{{\"chosen\": [{}, {}], \"rejected\": [{}, {}]}}\n", asked, good, asked, bad) +
      fmt::format(R"({{"prompt": [{}], "chosen": "d", "rejected": "e"}})", asked));
  ASSERT_EQ(rows.size(), 3U);
  for (const PreferenceRow& row : rows) {
    EXPECT_TRUE(row.is_chat);
    EXPECT_EQ(row.first, R"([{"role":"assistant","content":"d"}])");
    EXPECT_EQ(row.second, R"([{"role":"assistant","content":"e"}])");
  }
  EXPECT_THAT(rows[0].prompt, HasSubstr(R"("content":"b","train":false)"));
  EXPECT_EQ(rows[1].prompt, R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(line_of(rows[1], rows[1].first).text,
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"d"}])");
}

TEST(PreferenceRows, SayWhyTheyTeachNothing) {
  const auto rows = rows_of(R"({"prompt": "a", "chosen": "b", "rejected": "b"}
{"prompt": "a", "rejected": "b"}
{"prompt": "a", "chosen": "b", "rejected": null}
{"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(rows[0].problem, "both answers are the same");
  EXPECT_EQ(rows[1].problem, "no chosen answer");
  EXPECT_EQ(rows[2].problem, "no rejected answer");
  EXPECT_EQ(rows[3].problem, "both answers are the same");
}

TEST(PreferenceRows, AreLabelled) {
  const auto rows = rows_of(R"({"prompt": "a", "completion": "b", "label": true}

{"prompt": "a", "completion": "c", "label": 0})",
                            PairKind::kLabels);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].label);
  EXPECT_EQ(rows[0].first, "b");
  EXPECT_FALSE(rows[1].label);
  EXPECT_EQ(rows[1].number, 3);
}

TEST(PreferenceRows, OtherRowsAreRefusedByLine) {
  const auto refused = [](std::string_view content, PairKind kind = PairKind::kPreferences) {
    return error_of([&] { rows_of(content, kind); });
  };
  EXPECT_THAT(refused("\n{"), HasSubstr("rows.jsonl line 2 is not JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("line 1 is not an object"));
  EXPECT_THAT(refused(R"({"text": "a"})"), HasSubstr("neither a prompt nor answers"));
  EXPECT_THAT(refused(R"({"prompt": "a", "chosen": 3, "rejected": "b"})"), HasSubstr("line 1"));
  EXPECT_THAT(refused(R"({"prompt": "a", "chosen": "b", "chosen": "c"})"), HasSubstr("twice"));
  EXPECT_THAT(refused(R"({"prompt": "a", "completion": "b"})", PairKind::kLabels),
              HasSubstr("has no \"label\""));
  EXPECT_THAT(refused(R"({"prompt": "a", "completion": "b", "label": "good"})", PairKind::kLabels),
              HasSubstr("neither true nor false"));
}

// The documents of a source as text, the trained part of each in brackets; "!" before a mark.
std::vector<std::string> documents_of(const TokenSource& source, const Tokenizer& tokenizer) {
  std::vector<std::int64_t> bounds = source.document_starts();
  bounds.push_back(source.num_tokens());
  std::vector<std::string> documents;
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    const auto size = static_cast<std::size_t>(bounds[d + 1] - bounds[d]);
    std::vector<std::int32_t> tokens(size);
    std::vector<std::uint8_t> mask(size);
    source.copy(bounds[d], tokens);
    source.copy_mask(bounds[d], mask);
    std::string text = mask[0] != 0 ? "!" : "";
    bool is_inside = false;
    for (std::size_t i = 0; i < size; ++i) {
      const bool has_loss = i > 0 && mask[i] != 0;
      if (has_loss != is_inside) text += has_loss ? "[" : "]";
      is_inside = has_loss;
      text += tokenizer.token_bytes(tokens[i]);
    }
    documents.push_back(text + (is_inside ? "]" : ""));
  }
  return documents;
}

class PairTokenization : public ::testing::Test {
 protected:
  std::vector<std::string> documents(std::string_view content, PairKind kind) {
    write_file(directory_ / "rows.jsonl", content);
    const TokenizeOptions options = {.inputs = {directory_ / "rows.jsonl"}, .pairs = kind};
    return documents_of(tokenize_in_memory(options, tokenizer_), tokenizer_);
  }

  TemporaryDirectory directory_;
  Tokenizer tokenizer_ = make_byte_tokenizer();
};

TEST_F(PairTokenization, ARowIsTwoDocuments) {
  EXPECT_THAT(documents(R"({"prompt": "Q:", "chosen": "ab", "rejected": "c"}
{"prompt": "x", "chosen": "y", "rejected": "y"}
{"prompt": "R:", "chosen": "d", "rejected": "e"})",
                        PairKind::kPreferences),
              ElementsAre("Q:[ab<|endoftext|>]", "Q:[c<|endoftext|>]", "R:[d<|endoftext|>]",
                          "R:[e<|endoftext|>]"));
}

TEST_F(PairTokenization, ALabelledAnswerStandsBesideTheOneOfTheRowBefore) {
  EXPECT_THAT(documents(R"({"prompt": "A:", "completion": "a", "label": true}
{"prompt": "B:", "completion": "b", "label": false}
{"prompt": "C:", "completion": "c", "label": true})",
                        PairKind::kLabels),
              ElementsAre("B:[b<|endoftext|>]", "B:[a<|endoftext|>]", "!C:[c<|endoftext|>]",
                          "C:[b<|endoftext|>]", "!A:[a<|endoftext|>]", "A:[c<|endoftext|>]"));
}

TEST_F(PairTokenization, RowsThatTeachNothingAloneAreRefused) {
  EXPECT_THAT(error_of([&] {
                documents(R"({"prompt": "x", "chosen": "y", "rejected": "y"})",
                          PairKind::kPreferences);
              }),
              AllOf(HasSubstr("none of the 1 pair teaches anything"), HasSubstr("line 1"),
                    HasSubstr("both answers are the same")));
}

}  // namespace
}  // namespace atl::data
