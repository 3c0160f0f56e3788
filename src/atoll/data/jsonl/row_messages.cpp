#include "atoll/data/jsonl/row_messages.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/nesting.h"
#include "atoll/data/jsonl/foreign_rows.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;
using Json = nlohmann::ordered_json;

constexpr const char* kShareGptMessages =
    "ShareGPT (from, value), as messages: human is the user, gpt the assistant";

std::string written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Text of a row that is JSON itself. Null where it is none.
std::optional<Json> parsed(std::string_view text) {
  constexpr int kMaxNesting = 64;
  if (nesting_depth(text) > kMaxNesting) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

// A list of objects, as itself, as JSON text, or as a list of JSON texts.
Json list_of_tools(const dom::element& value, const char* key, const std::string& origin) {
  const auto fail = [&](std::string_view what) {
    return user_error(
        "{} has \"{}\" that {}; give a list of objects with \"name\" and \"parameters\"", origin,
        key, what);
  };
  const std::string minified = simdjson::minify(value);
  std::optional<Json> list = parsed(minified);
  if (list && list->is_string()) {
    const auto text = list->get<std::string>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::array();
    list = parsed(text);
    if (!list) throw fail("are text and no JSON");
  }
  if (!list) throw fail("are nested too deeply");
  if (list->is_null()) return Json::array();
  if (!list->is_array()) throw fail("are no list");
  for (Json& tool : *list) {
    if (tool.is_string()) {
      auto inside = parsed(tool.get<std::string>());
      if (!inside) throw fail("hold a text that is no JSON");
      tool = std::move(*inside);
    }
    if (!tool.is_object()) throw fail("hold something else than an object");
  }
  return std::move(*list);
}

}  // namespace

std::string conversation(const dom::element& messages, const Fields& fields,
                         const std::string& origin, JsonlLine& line) {
  if (fields.has_plain_messages() && has_sharegpt_messages(messages)) {
    line.mapping = kShareGptMessages;
    return sharegpt_messages(messages, origin);
  }
  std::string text = simdjson::minify(messages);
  if (fields.has_plain_messages()) return text;
  return plain_messages(fields, text, origin);
}

std::string pair_conversation(const dom::element& prompt, const dom::element& completion,
                              const Fields& fields, const std::string& origin, JsonlLine& line) {
  const auto part = [&](const dom::element& value, const char* role) {
    std::string_view text;
    if (!value.get(text)) {
      return Json::array({Json{{"role", role}, {"content", std::string(text)}}});
    }
    const auto list = parsed(conversation(value, fields, origin, line));
    if (!list || !list->is_array()) {
      throw user_error("{} has a {} that is neither a text nor a list of messages", origin,
                       std::string_view(role) == "user" ? "prompt" : "completion");
    }
    return *list;
  };
  Json messages = part(prompt, "user");
  for (Json& message : messages) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (message.is_object() && role != message.end() && *role == "assistant") {
      message["train"] = false;
    }
  }
  for (Json& message : part(completion, "assistant")) messages.push_back(std::move(message));
  return written(messages);
}

std::string template_variables(const RowVariables& row, const std::string& origin) {
  Json variables = Json::object();
  if (row.kwargs) {
    const auto given = parsed(simdjson::minify(*row.kwargs));
    if (!given || !given->is_object()) {
      throw user_error("{} has \"chat_template_kwargs\" that are no object; mend it", origin);
    }
    variables = *given;
  }
  Json tools = row.tools ? list_of_tools(*row.tools, "tools", origin) : Json::array();
  const Json functions =
      row.functions ? list_of_tools(*row.functions, "functions", origin) : Json::array();
  if (!tools.empty() && !functions.empty()) {
    throw user_error("{} has both \"tools\" and \"functions\"; remove one", origin);
  }
  for (const Json& function : functions) {
    tools.push_back(function.contains("function")
                        ? function
                        : Json{{"type", "function"}, {"function", function}});
  }
  if (!tools.empty() && variables.contains("tools")) {
    throw user_error("{} has \"tools\" twice: beside the messages and in chat_template_kwargs",
                     origin);
  }
  if (!tools.empty()) variables["tools"] = std::move(tools);
  return variables.empty() ? "" : written(variables);
}

}  // namespace atl::data
