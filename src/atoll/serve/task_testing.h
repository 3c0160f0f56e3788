#pragma once

// What tests of tasks share: a small model's configuration, and questions for it.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/nn/models/family.h"
#include "atoll/serve/task.h"
#include "atoll/serve/task_encoding.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::test {

/// One token a character: what a text spells is known, and any longer text spans tokens.
inline Tokenizer letters() {
  const std::vector<std::string_view> texts = {"abcdefghijklmnopqrstuvwxyz .\n"};
  return make_char_tokenizer(texts);
}

/// A model of these letters.
inline nn::ModelConfig letter_model() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = letters().vocab_size();
  config.hidden_size = 24;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  config.intermediate_size = 40;
  config.max_positions = 256;
  config.initializer_range = 0.3;
  return config;
}

/// An item and its tokens.
struct Question {
  serve::TaskItem item;
  serve::EncodedItem encoded;
};

/// The same as its tokens.
inline Question encoded(serve::TaskItem item) {
  const Tokenizer tokenizer = letters();
  serve::EncodedItem tokens =
      serve::TaskEncoder(tokenizer, std::nullopt, false, "quiz.jsonl").encode(item);
  return {std::move(item), std::move(tokens)};
}

/// A multiple choice.
inline Question choosing(const std::string& prompt, std::vector<std::string> choices) {
  serve::TaskItem item;
  item.prompt = prompt;
  item.choices = std::move(choices);
  return encoded(std::move(item));
}

/// An answer to be generated.
inline Question writing(const std::string& prompt, std::vector<std::string> answers) {
  serve::TaskItem item;
  item.prompt = prompt;
  item.answers = std::move(answers);
  return encoded(std::move(item));
}

/// `text`, so many times.
inline std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

/// Prompts around the lengths of pieces, choices shorter and longer than one.
inline std::vector<Question> questions() {
  const std::string examples = repeated("the sea is wide. ", 8);  // 136 characters
  return {choosing("a", {" b", " cd"}),
          choosing("the islands lie", {" in a ring of many small stones and sand", " far", "."}),
          choosing(examples + "the sea is", {" deep", " wide"}),
          choosing(examples + "the ring is ", {"round", "square", "round"}),
          choosing(examples.substr(0, 128), {"b", " c"}),
          choosing(examples.substr(0, 65), {" xyz", repeated("long ", 14)}),
          choosing("a", {" b", " cd"})};
}

}  // namespace atl::test
