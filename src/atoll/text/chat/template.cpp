#include "atoll/text/chat/template.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/chat/program.h"
#include "atoll/text/jinja/parser.h"
#include "atoll/text/utf8.h"

namespace atl {

namespace text {

namespace {

using jinja::Value;

void set(jinja::Dict& dict, const std::string& key, Value value) {
  dict.set(Value(key), key, std::move(value));
}

void check_utf8(std::string_view text, std::size_t index, std::string_view field) {
  if (const std::size_t valid = valid_utf8_prefix(text); valid != text.size()) {
    throw user_error("message {}: the {} is not UTF-8 from byte {} on", index, field, valid);
  }
}

// Older names of a message's reasoning are filled into the newer ones, as transformers does.
jinja::Dict with_reasoning(const jinja::Dict& fields) {
  const Value* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = fields.find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
  }
  if (reasoning == nullptr) return fields;
  jinja::Dict made;
  set(made, "thinking", *reasoning);
  for (const auto& [key, value] : fields.entries) set(made, key.string(), value);
  set(made, "reasoning_content", *reasoning);
  return made;
}

Value message_value(const ChatMessage& message, std::size_t index) {
  check_utf8(message.role, index, "role");
  jinja::Dict fields;
  set(fields, "role", Value(message.role));
  if (message.content.has_value()) {
    check_utf8(*message.content, index, "content");
    set(fields, "content", Value(*message.content));
  }
  if (!message.extra.empty()) {
    const std::string origin = fmt::format("message {}", index);
    const Value extra = jinja::parse_json(message.extra, origin);
    if (!extra.is_dict()) throw user_error("{}: its extra fields are not an object", origin);
    for (const auto& [key, value] : extra.dict().entries) {
      if (!value.is_none()) set(fields, key.string(), value);
    }
  }
  return Value(std::make_shared<const jinja::Dict>(with_reasoning(fields)));
}

}  // namespace

const jinja::Tree& ChatProgram::choose(const jinja::Dict& variables) const {
  const Value* tools = variables.find("tools");
  const bool has_tools = tools != nullptr && !tools->is_none();
  return has_tools && with_tools.has_value() ? *with_tools : main;
}

jinja::Values message_values(const std::vector<ChatMessage>& messages) {
  jinja::Values values;
  for (std::size_t i = 0; i < messages.size(); ++i) values.push_back(message_value(messages[i], i));
  return values;
}

jinja::Dict base_variables(const ChatProgram& program, const ChatOptions& options) {
  jinja::Dict made = program.tokens;
  set(made, "tools", jinja::None{});
  set(made, "documents", jinja::None{});
  if (options.variables.empty()) return made;
  const Value given = jinja::parse_json(options.variables, "the variables of the chat template");
  if (!given.is_dict()) throw user_error("the variables of the chat template are no JSON object");
  for (const auto& [key, value] : given.dict().entries) {
    if (key.string() == "messages" || key.string() == "add_generation_prompt") {
      throw user_error("the variables of the chat template: \"{}\" has its own place",
                       key.string());
    }
    set(made, key.string(), value);
  }
  return made;
}

jinja::Dict message_variables(const jinja::Dict& base, const jinja::Values& messages,
                              std::size_t count, bool add_generation_prompt) {
  jinja::Sequence shown;
  shown.items.assign(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
  for (const Value& message : shown.items) {
    shown.depth = std::max(shown.depth, jinja::depth_of(message) + 1);
  }
  jinja::Dict variables = base;
  set(variables, "messages",
      Value(jinja::List{std::make_shared<const jinja::Sequence>(std::move(shown))}));
  set(variables, "add_generation_prompt", Value(add_generation_prompt));
  return variables;
}

jinja::Output render_messages(const ChatProgram& program, const jinja::Dict& base,
                              const jinja::Values& messages, std::size_t count,
                              bool add_generation_prompt, std::time_t now) {
  jinja::Dict variables = message_variables(base, messages, count, add_generation_prompt);
  const jinja::Tree& tree = program.choose(variables);
  try {
    return jinja::render(tree, program.origin,
                         Value(std::make_shared<const jinja::Dict>(std::move(variables))), now,
                         jinja::Limits{}, std::span(messages).first(count));
  } catch (const Error& error) {
    for (std::size_t i = 0; i < count; ++i) {
      const Value* content = messages[i].dict().find("content");
      if (content == nullptr || !content->is_sequence()) continue;
      throw Error(error.kind(),
                  fmt::format("{}; message {} has its content in parts, which not every template "
                              "takes: write it as one text",
                              error.what(), i));
    }
    throw;
  }
}

namespace {

// What the template marks, without the answers that have no loss.
std::vector<TextSpan> marked_spans(const ChatProgram& program,
                                   const std::vector<ChatMessage>& messages,
                                   const jinja::Output& whole) {
  std::vector<TextSpan> spans;
  for (const auto& [begin, end] : whole.generated) spans.push_back({begin, end});
  const auto is_silent = [](const ChatMessage& message) {
    return message.role == "assistant" && !message.has_loss;
  };
  if (std::none_of(messages.begin(), messages.end(), is_silent)) return spans;
  std::vector<TextSpan> kept;
  std::size_t answer = 0;
  for (const ChatMessage& message : messages) {
    if (message.role != "assistant") continue;
    if (answer < spans.size() && message.has_loss) kept.push_back(spans[answer]);
    ++answer;
  }
  if (answer == spans.size()) return kept;
  throw user_error(
      "{}: the template marks {} pieces as {{% generation %}} for {} answers, so it is not known "
      "which of them the message without a loss (\"weight\", \"train\") is; take that message out",
      program.origin, spans.size(), answer);
}

}  // namespace

}  // namespace text

using text::ChatProgram;

ChatTemplate::ChatTemplate(std::shared_ptr<const ChatProgram> program)
    : program_(std::move(program)) {}

ChatTemplate ChatTemplate::from_text(std::string_view source, std::string_view bos_token,
                                     std::string_view eos_token, std::string_view origin) {
  auto program = std::make_shared<ChatProgram>();
  program->origin = origin;
  program->main = text::jinja::parse(source, origin);
  program->sources = source;
  if (!bos_token.empty()) {
    text::set(program->tokens, "bos_token", text::Value(std::string(bos_token)));
  }
  if (!eos_token.empty()) {
    text::set(program->tokens, "eos_token", text::Value(std::string(eos_token)));
  }
  return ChatTemplate(std::move(program));
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                 const ChatOptions& options) const {
  const auto base = text::base_variables(*program_, options);
  const std::time_t now = options.now.value_or(std::time(nullptr));
  const auto values =
      text::message_values(text::with_whole_content(*program_, base, messages, now));
  return text::render_messages(*program_, base, values, values.size(),
                               options.add_generation_prompt, now)
      .text;
}

bool ChatTemplate::shows_time() const {
  const auto names = [](const text::jinja::Tree& tree) {
    return std::find(tree.names.begin(), tree.names.end(), "strftime_now") != tree.names.end();
  };
  return names(program_->main) || (program_->with_tools && names(*program_->with_tools));
}

bool ChatTemplate::mentions(std::string_view text) const {
  return program_->sources.find(text) != std::string::npos;
}

TrainingText ChatTemplate::render_for_training(const std::vector<ChatMessage>& messages,
                                               const ChatOptions& options) const {
  const auto base = text::base_variables(*program_, options);
  const std::time_t now = options.now.value_or(std::time(nullptr));
  text::warn_of_unseen_tools(*program_, base);
  const auto spoken = text::with_whole_content(*program_, base, messages, now);
  const auto values = text::message_values(spoken);
  auto whole = text::render_messages(*program_, base, values, values.size(), false, now);
  if (whole.lost_generation_line != 0) {
    throw user_error(
        "{}: line {}: what is inside {{% generation %}} goes into a macro, a variable "
        "or a filter, so that its place in the text is not known; move it out",
        program_->origin, whole.lost_generation_line);
  }
  TrainingText made;
  if (program_->choose(base).has_generation) {
    made.trained = text::marked_spans(*program_, spoken, whole);
  } else {
    made.trained = text::spans_by_prefixes(*program_, base, spoken, values, whole, now);
  }
  made.text = std::move(whole.text);
  return made;
}

}  // namespace atl
