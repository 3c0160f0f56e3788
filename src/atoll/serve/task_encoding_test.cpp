// Where a choice begins among the tokens of a prompt and its choices.

#include "atoll/serve/task_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::serve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Merges " dog", " cat", "hot" and "hotel", among others: each stands in the text often enough.
Tokenizer merging_tokenizer() {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "a dog a cat a hotel hot hot hot dog cat\n";
  const std::vector<std::string_view> texts = {text};
  return train_bpe(texts, {.vocab_size = 280});
}

TaskItem choice_item(const std::string& prompt, std::vector<std::string> choices) {
  TaskItem item;
  item.line = 7;
  item.prompt = prompt;
  item.choices = std::move(choices);
  return item;
}

EncodedItem encode(const Tokenizer& tokenizer, const TaskItem& item) {
  return TaskEncoder(tokenizer, std::nullopt, false, "quiz.jsonl").encode(item);
}

std::string refusal(const Tokenizer& tokenizer, const TaskItem& item) {
  try {
    encode(tokenizer, item);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "encoded without complaint";
}

TEST(TaskEncoding, AChoiceThatBeginsWithASpaceIsItsOwnTokens) {
  const Tokenizer tokenizer = merging_tokenizer();
  const EncodedItem encoded = encode(tokenizer, choice_item("a hot", {" dog", " cat"}));
  EXPECT_EQ(encoded.context, tokenizer.encode("a hot"));
  ASSERT_EQ(encoded.continuations.size(), 2U);
  EXPECT_EQ(encoded.continuations[0], tokenizer.encode(" dog"));
  EXPECT_EQ(encoded.continuations[1], tokenizer.encode(" cat"));
  EXPECT_EQ(encoded.continuations[0].size(), 1U) << "the space belongs to the word's token";
}

TEST(TaskEncoding, WhiteSpaceAtThePromptsEndBelongsToTheChoice) {
  const Tokenizer tokenizer = merging_tokenizer();
  const EncodedItem before = encode(tokenizer, choice_item("a hot", {" dog", " cat"}));
  const EncodedItem after = encode(tokenizer, choice_item("a hot ", {"dog", "cat"}));
  EXPECT_EQ(after.context, before.context);
  EXPECT_EQ(after.continuations, before.continuations);
  EXPECT_EQ(after.prompt, "a hot ");

  const EncodedItem lines = encode(tokenizer, choice_item("a hot \n\n", {"dog", "cat"}));
  EXPECT_EQ(lines.context, before.context);
  EXPECT_EQ(tokenizer.decode(lines.continuations[0]), " \n\ndog");
}

TEST(TaskEncoding, ATokenAcrossTheBoundaryIsScoredForEveryChoice) {
  const Tokenizer tokenizer = merging_tokenizer();
  const std::vector<std::int32_t> hotel = tokenizer.encode("a hotel");
  const std::vector<std::int32_t> hot = tokenizer.encode("a hot");
  ASSERT_NE(hotel[1], hot[1]) << "\" hotel\" must be a token of its own here";

  const EncodedItem encoded = encode(tokenizer, choice_item("a hot", {"el", " dog"}));
  EXPECT_EQ(encoded.context, tokenizer.encode("a"));
  EXPECT_EQ(tokenizer.decode(encoded.continuations[0]), " hotel");
  EXPECT_EQ(tokenizer.decode(encoded.continuations[1]), " hot dog");
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::int32_t> all = encoded.context;
    all.insert(all.end(), encoded.continuations[i].begin(), encoded.continuations[i].end());
    EXPECT_EQ(all, tokenizer.encode(i == 0 ? "a hotel" : "a hot dog")) << "what the text really is";
  }
}

TEST(TaskEncoding, AnEmptyPromptIsTheEndOfADocumentBefore) {
  const Tokenizer tokenizer = merging_tokenizer();
  for (const char* prompt : {"", " "}) {
    const EncodedItem encoded = encode(tokenizer, choice_item(prompt, {"dog", "cat"}));
    EXPECT_EQ(encoded.context, std::vector<std::int32_t>{*tokenizer.end_of_text()});
    EXPECT_EQ(tokenizer.decode(encoded.continuations[0]), std::string(prompt) + "dog");
  }
  const std::vector<std::string_view> texts = {"dogcat "};
  const Tokenizer characters = make_char_tokenizer(texts);
  EXPECT_THAT(refusal(characters, choice_item("", {"dog", "cat"})),
              AllOf(StartsWith("quiz.jsonl line 7: "), HasSubstr("longer prompt")));
}

TEST(TaskEncoding, WhatCannotBeEncodedIsNamedWithItsLine) {
  const std::vector<std::string_view> texts = {"dogcat "};
  const Tokenizer characters = make_char_tokenizer(texts);
  EXPECT_THAT(refusal(characters, choice_item("cat", {"dog", "bird"})),
              StartsWith("quiz.jsonl line 7: "));
}

TEST(TaskEncoding, APromptToContinueIsEncodedAsItStands) {
  const Tokenizer tokenizer = merging_tokenizer();
  TaskItem item;
  item.prompt = "a hot ";
  item.answers = {"dog"};
  const EncodedItem encoded = encode(tokenizer, item);
  EXPECT_EQ(encoded.context, tokenizer.encode("a hot "));
  EXPECT_FALSE(encoded.is_chat);
}

TEST(TaskEncoding, MessagesAndWrappedPromptsAreRenderedWithTheAnswersHeader) {
  const Tokenizer tokenizer = make_byte_tokenizer();
  const ChatTemplate chat = ChatTemplate::from_text(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>\n{% endif %}",
      "", "", "chat.jinja");
  TaskItem item = choice_item("", {"dog", "cat"});
  item.messages = {{"system", "Be brief.", ""}, {"user", "Which?", ""}};
  const EncodedItem messages = TaskEncoder(tokenizer, chat, false, "t").encode(item);
  EXPECT_TRUE(messages.is_chat);
  EXPECT_EQ(messages.prompt, "<system>Be brief.</><user>Which?</><assistant>\n");
  EXPECT_EQ(tokenizer.decode(messages.continuations[1]), "\ncat");

  TaskItem plain;
  plain.prompt = "Which?";
  plain.answers = {"dog"};
  EXPECT_EQ(TaskEncoder(tokenizer, chat, true, "t").encode(plain).prompt,
            "<user>Which?</><assistant>\n");
  EXPECT_EQ(TaskEncoder(tokenizer, chat, false, "t").encode(plain).prompt, "Which?");
}

TEST(TaskEncoding, DroppingFromTheLeftLeavesTheEnd) {
  const Tokenizer tokenizer = make_byte_tokenizer();
  EncodedItem encoded = encode(tokenizer, choice_item("abcdef", {"gh", "ijk"}));
  EXPECT_EQ(positions_needed(encoded, 100), 8);  // abcdefijk without its last token
  EXPECT_TRUE(drop_left(encoded, 2));
  EXPECT_EQ(tokenizer.decode(encoded.context), "cdef");
  EXPECT_EQ(encoded.dropped, 2);
  EXPECT_EQ(positions_needed(encoded, 100), 6);
  EXPECT_FALSE(drop_left(encoded, 4));
  EXPECT_EQ(tokenizer.decode(encoded.context), "cdef");

  TaskItem item;
  item.prompt = "abc";
  item.answers = {"d"};
  EXPECT_EQ(positions_needed(encode(tokenizer, item), 100), 102);
}

}  // namespace
}  // namespace atl::serve
