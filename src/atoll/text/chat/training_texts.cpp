// From conversations to the texts that they are learnt from.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/chat/program.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/chat/turns.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/utf8.h"

namespace atl {

namespace text {

namespace {

// Puts `mark` into every special token that is spelled, behind its first character, and tells the
// first of them.
std::string with_marks(const Tokenizer& tokenizer, std::string_view from, std::string_view mark,
                       std::string& first) {
  std::string made;
  std::size_t done = 0;
  for (auto at = tokenizer.find_special(from, 0); at; at = tokenizer.find_special(from, done)) {
    if (first.empty()) first = from.substr(at->first, at->second - at->first);
    const std::size_t inside = at->first + utf8_step(from.substr(at->first)).size;
    made += from.substr(done, inside - done);
    made += mark;
    made += from.substr(inside, at->second - inside);
    done = at->second;
  }
  made += from.substr(done);
  return made;
}

// The same for all strings of a value but roles and the keys of dicts.
jinja::Value with_marks(const Tokenizer& tokenizer, const jinja::Value& value,
                        std::string_view mark, std::string& first) {
  using jinja::Value;
  const auto marked = [&](const Value& inner) { return with_marks(tokenizer, inner, mark, first); };
  if (value.is_string()) return Value(with_marks(tokenizer, value.string(), mark, first));
  if (value.is(jinja::Kind::kList)) {
    jinja::Sequence made;
    made.depth = value.sequence().depth;
    for (const Value& item : value.items()) made.items.push_back(marked(item));
    return Value(jinja::List{std::make_shared<const jinja::Sequence>(std::move(made))});
  }
  if (!value.is_dict()) return value;
  jinja::Dict made;
  for (const auto& [key, inner] : value.dict().entries) {
    const bool is_role = key.is_string() && key.string() == "role";
    made.set(key, key.string(), is_role ? inner : marked(inner));
  }
  return Value(std::make_shared<const jinja::Dict>(std::move(made)));
}

void learn_last_answer_alone(std::vector<ChatMessage>& messages) {
  bool is_last = true;
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (message->role != "assistant") continue;
    message->has_loss = message->has_loss && is_last;
    is_last = false;
  }
}

// For each answer that has a loss the conversation up to it.
std::vector<std::vector<ChatMessage>> part_of_each_answer(
    const std::vector<ChatMessage>& messages) {
  std::vector<std::vector<ChatMessage>> parts;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant" || !messages[i].has_loss) continue;
    parts.emplace_back(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    learn_last_answer_alone(parts.back());
  }
  return parts;
}

// The first special token that a message spells; empty when none does.
std::string spelled_in(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer) {
  for (const ChatMessage& message : messages) {
    for (const std::string& said : {message.content.value_or(""), message.extra}) {
      if (const auto at = tokenizer.find_special(said, 0)) {
        return said.substr(at->first, at->second - at->first);
      }
    }
  }
  return "";
}

}  // namespace

}  // namespace text

void ChatTemplate::find_literal(const std::vector<ChatMessage>& messages,
                                const Tokenizer& tokenizer, const ChatOptions& options,
                                TrainingText& text) const {
  const std::string mark = text::unused_character(text.text);
  text::jinja::Values values = text::message_values(messages);
  for (auto& value : values) value = text::with_marks(tokenizer, value, mark, text.spelled);
  if (text.spelled.empty()) return;
  const auto base = text::base_variables(*program_, options);
  const std::string marked = text::render_messages(*program_, base, values, values.size(), false,
                                                   options.now.value_or(std::time(nullptr)))
                                 .text;
  std::string plain;
  std::size_t done = 0;
  for (std::size_t at = marked.find(mark); at != std::string::npos; at = marked.find(mark, done)) {
    plain += std::string_view(marked).substr(done, at - done);
    std::size_t begin = plain.size();
    do {
      --begin;
    } while (begin > 0 && (static_cast<unsigned char>(plain[begin]) & 0xC0U) == 0x80U);
    text.literal.push_back(begin);
    done = at + mark.size();
  }
  plain += std::string_view(marked).substr(done);
  if (plain == text.text) return;
  throw user_error(
      "{}: a message spells the special token \"{}\", which the template looks for, so that it "
      "cannot be text; take it out of the message, give thinking as \"reasoning_content\", or set "
      "data.chat_literal_content to false (leave out --chat-literal-content)",
      program_->origin, text.spelled);
}

std::vector<TrainingText> ChatTemplate::training_texts(std::vector<ChatMessage> messages,
                                                       const ChatTraining& how,
                                                       const Tokenizer& tokenizer,
                                                       const ChatOptions& options) const {
  ChatOptions fixed = options;
  fixed.now = options.now.value_or(std::time(nullptr));  // texts that are compared have one time
  messages = text::with_whole_content(*program_, text::base_variables(*program_, options), messages,
                                      *fixed.now);
  if (how.last_only) text::learn_last_answer_alone(messages);
  std::vector<std::vector<ChatMessage>> parts;
  if (how.keep_thinking && !writes_answers_alike(messages, fixed)) {
    parts = text::part_of_each_answer(messages);
  }
  if (parts.empty()) parts.push_back(std::move(messages));
  std::vector<TrainingText> texts;
  for (const auto& part : parts) {
    TrainingText& text = texts.emplace_back(render_for_training(part, fixed));
    if (how.literal_content) {
      find_literal(part, tokenizer, fixed, text);
    } else {
      text.spelled = text::spelled_in(part, tokenizer);
    }
  }
  return texts;
}

bool ChatTemplate::writes_answers_alike(const std::vector<ChatMessage>& messages,
                                        const ChatOptions& options) const {
  const auto values = text::message_values(messages);
  const auto base = text::base_variables(*program_, options);
  const auto whole =
      text::render_messages(*program_, base, values, values.size(), false, *options.now);
  return text::writes_answers_alike(*program_, base, messages, values, whole.text, *options.now);
}

}  // namespace atl
