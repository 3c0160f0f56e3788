// Content in parts ([{"type": "text", "text": "..."}]) for templates that want a text.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/text/chat/program.h"

namespace atl::text {

namespace {

using Json = nlohmann::ordered_json;

// The parts of a message's content; nothing where it has none.
std::optional<Json> parts_of(const ChatMessage& message) {
  if (message.content.has_value() || message.extra.empty()) return std::nullopt;
  Json extra = Json::parse(message.extra, nullptr, /*allow_exceptions=*/false);
  if (!extra.is_object() || !extra.contains("content") || !extra["content"].is_array()) {
    return std::nullopt;
  }
  return std::move(extra["content"]);
}

// A template that wants a text fails on a list, or writes it as Python does.
bool takes_parts(const ChatProgram& program, const jinja::Dict& base, std::time_t now) {
  ChatMessage message;
  message.role = "user";
  message.extra =
      Json{{"content", Json::array({Json{{"type", "text"}, {"text", "Quite so"}}})}}.dump();
  try {
    const auto values = message_values({message});
    return render_messages(program, base, values, 1, false, now).text.find("[{'type'") ==
           std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

std::string joined(const Json& parts, std::size_t index) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    const bool is_text = part.is_object() && part.value("type", "text") == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      throw user_error(
          "message {} has its content in parts, of which one is no text ({}), and this template "
          "takes text alone: leave the conversation out",
          index, part.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace

std::vector<ChatMessage> with_whole_content(const ChatProgram& program, const jinja::Dict& base,
                                            const std::vector<ChatMessage>& messages,
                                            std::time_t now) {
  std::vector<ChatMessage> whole = messages;
  bool is_known = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto parts = parts_of(whole[i]);
    if (!parts) continue;
    if (!is_known && takes_parts(program, base, now)) return messages;
    is_known = true;
    Json extra = Json::parse(whole[i].extra);
    extra.erase("content");
    whole[i].content = joined(*parts, i);
    whole[i].extra = extra.empty() ? "" : extra.dump();
  }
  return whole;
}

void warn_of_unseen_tools(const ChatProgram& program, const jinja::Dict& base) {
  const jinja::Value* tools = base.find("tools");
  if (tools == nullptr || tools->is_none()) return;
  const auto& names = program.choose(base).names;
  if (std::find(names.begin(), names.end(), "tools") != names.end()) return;
  if (program.has_told_of_tools.exchange(true)) return;
  log::warning(
      "{}: conversations come with tools, and this template writes none: the model does "
      "not see them",
      program.origin);
}

}  // namespace atl::text
