#include "atoll/serve/api/answer_text.h"

#include <algorithm>

namespace atl::serve::api {

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      decoder_(tokenizer, {.skip_special = true}),
      stops_(std::move(stops)) {}

void AnswerText::follow(std::span<const std::int32_t> prompt) {
  // The last few are enough to begin a text, and to end in the middle of a character.
  constexpr std::size_t kEnough = 16;
  for (const std::int32_t token : prompt.last(std::min(prompt.size(), kEnough))) {
    if (!tokenizer_.is_special(token)) decoder_.push(token);
  }
  decoder_.settle();
}

void AnswerText::place(const TokenResult& token, bool has_logprob) {
  waiting_.push_back({.token = token,
                      .begin = read_bytes_,
                      .characters = read_characters_,
                      .has_logprob = has_logprob});
}

void AnswerText::take_text(const std::string& text) {
  read_bytes_ += text.size();
  read_characters_ += count_characters(text);
}

Piece AnswerText::give(std::string shown) {
  shown_bytes_ += shown.size();
  Piece piece{.text = std::move(shown), .tokens = {}};
  while (!waiting_.empty() && waiting_.front().begin < shown_bytes_) {
    piece.tokens.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return piece;
}

Piece AnswerText::echo(std::span<const TokenResult> prompt) {
  std::string shown;
  const auto add = [&](const std::string& text) {
    take_text(text);
    shown += text;
  };
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    place(prompt[i], /*has_logprob=*/i > 0);
    if (!tokenizer_.is_special(prompt[i].token)) add(decoder_.push(prompt[i].token));
  }
  add(decoder_.settle());
  Piece piece = give(std::move(shown));
  // Tokens without a text at its end are the prompt's all the same.
  for (PlacedToken& token : waiting_) piece.tokens.push_back(std::move(token));
  waiting_.clear();
  return piece;
}

Piece AnswerText::push(const TokenResult& token) {
  place(token, /*has_logprob=*/true);
  // A model may have more rows than its tokenizer has tokens: these have no text.
  const bool has_text = token.token < tokenizer_.vocab_size();
  const std::string text = has_text ? decoder_.push(token.token) : "";
  take_text(text);
  return give(stops_.push(text));
}

Piece AnswerText::finish() {
  if (stops_.has_stopped()) return {};
  const std::string text = decoder_.finish();
  take_text(text);
  std::string shown = stops_.push(text);
  if (!stops_.has_stopped()) shown += stops_.finish();
  Piece piece = give(std::move(shown));
  if (stops_.has_stopped()) return piece;
  for (PlacedToken& token : waiting_) piece.tokens.push_back(std::move(token));
  waiting_.clear();
  return piece;
}

}  // namespace atl::serve::api
