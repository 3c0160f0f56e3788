#include "atoll/serve/api/chat_request.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/text/chat/template.h"

namespace atl::serve::api {

namespace {

// A chat request whose fields are not joined yet: their meaning depends on one another.
struct ChatDraft {
  ChatRequest request;
  std::optional<std::int64_t> max_completion_tokens;
  bool has_logprobs = false;
  std::optional<int> top_logprobs;
  Json tools;                           // null: none
  std::string tool_choice;              // "auto", "none", "required"; empty: not given
  std::optional<std::string> function;  // the one to call
  Json template_variables = Json::object();
};

using Type = FieldType;

constexpr double kMaxLogprobs = 20;
constexpr double kMaxNewTokens = 1 << 30;
constexpr std::size_t kMaxTools = 128;

void take_tools(const Json& value, ChatDraft& into) {
  if (value.empty()) return;
  if (value.size() > kMaxTools) {
    throw field_error("tools",
                      fmt::format("tools has {}; give at most {}", value.size(), kMaxTools));
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json& tool = value[i];
    const bool is_function = tool.is_object() && tool.contains("type") &&
                             tool["type"] == "function" && tool.contains("function") &&
                             tool["function"].is_object() && tool["function"].contains("name") &&
                             tool["function"]["name"].is_string();
    const std::string name = fmt::format("tools[{}]", i);
    if (!is_function) {
      throw field_error(name,
                        name + R"( must be {"type":"function","function":{"name":"...",...}})",
                        "invalid_type");
    }
    into.request.tool_names.push_back(tool["function"]["name"].get<std::string>());
  }
  into.tools = value;
}

// {"type":"function","function":{"name":"..."}}, or nothing.
std::optional<std::string> function_of(const Json& value) {
  if (!value.is_object() || value.value("type", Json()) != "function") return std::nullopt;
  const auto function = value.find("function");
  if (function == value.end() || !function->is_object()) return std::nullopt;
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

void take_tool_choice(const Json& value, ChatDraft& into) {
  constexpr const char* kName = "tool_choice";
  into.tool_choice = value.is_string() ? value.get<std::string>() : "required";
  into.function = function_of(value);
  const bool is_known =
      into.tool_choice == "auto" || into.tool_choice == "none" || into.tool_choice == "required";
  if (is_known && (value.is_string() || into.function)) return;
  throw field_error(kName, R"(tool_choice must be "auto", "none", "required" or )"
                           R"({"type":"function","function":{"name":"..."}})");
}

void take_reasoning_format(const Json& value, ChatDraft& into) {
  constexpr const char* kName = "reasoning_format";
  const bool is_none = value == "none";
  if (!is_none && value != "auto" && value != "deepseek") {
    throw field_error(kName, R"(reasoning_format must be "auto", "deepseek" or "none")");
  }
  into.request.splits_reasoning = !is_none;
}

void take_modalities(const Json& value, ChatDraft& /*into*/) {
  if (value == Json::array({"text"})) return;
  throw field_error("modalities", "modalities is not supported: answers are text; leave it out",
                    "unsupported_parameter");
}

// Calls of the conversation with their arguments as an object, as templates want them; OpenAI's
// clients send the text of one.
void open_arguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    Json& function = call["function"];
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (!arguments.is_string()) continue;
    try {
      const Json opened = parse_body(arguments.get_ref<const std::string&>());
      arguments = opened;
    } catch (const ApiError&) {
      continue;  // the model wrote no object: the template gets the text
    }
  }
}

std::vector<Field<ChatDraft>> tool_fields() {
  return {
      {{"tools", Type::kArray, "Functions that the model may call, for the chat template.", 0, 0,
        R"({"type":"object"})"},
       take_tools},
      {{"tool_choice", Type::kOther,
        "\"none\": tools are not shown to the model; \"required\", or one function: it calls.", 0,
        0, R"({"anyOf":[{"enum":["auto","none","required"]},{"type":"object"}]})"},
       take_tool_choice},
      {{"parallel_tool_calls", Type::kBoolean, "False: an answer ends behind its first call."},
       [](const Json& value, ChatDraft& into) { into.request.has_one_call = !value.get<bool>(); }},
      {{"chat_template_kwargs", Type::kObject, "More variables for the chat template."},
       [](const Json& value, ChatDraft& into) { into.template_variables = value; }},
      {{"functions", Type::kRefused, "use tools"}, {}},
      {{"function_call", Type::kRefused, "use tool_choice"}, {}},
  };
}

std::vector<Field<ChatDraft>> other_fields() {
  return {
      {{"reasoning_format", Type::kOther,
        "\"none\": what the model thinks stays in the content, with its marks.", 0, 0,
        R"({"enum":["auto","deepseek","none"]})"},
       take_reasoning_format},
      {{"modalities", Type::kOther, "The list [\"text\"].", 0, 0,
        R"({"type":"array","items":{"enum":["text"]}})"},
       take_modalities},
      {{"audio", Type::kRefused, "answers are text"}, {}},
      {{"prediction", Type::kRefused, "leave it out"}, {}},
      {{"web_search_options", Type::kRefused, "nothing is searched here"}, {}},
      {{"metadata", Type::kIgnored, "For the client's own use."}, {}},
      {{"store", Type::kIgnored, "Nothing is stored."}, {}},
      {{"service_tier", Type::kIgnored, "There is one tier."}, {}},
      {{"safety_identifier", Type::kIgnored, "For the client's own use."}, {}},
      {{"prompt_cache_key", Type::kIgnored, "Prompts of one API key share a cache anyway."}, {}},
      {{"prompt_cache_retention", Type::kIgnored, "Prompts stay while there is room."}, {}},
      {{"reasoning_effort", Type::kRefused, "give the template's own in chat_template_kwargs"}, {}},
      {{"verbosity", Type::kRefused, "say it in a message"}, {}},
  };
}

std::vector<Field<ChatDraft>> main_fields() {
  return {
      {{.name = "messages",
        .type = Type::kArray,
        .help = "The conversation.",
        .schema = R"({"type":"object","required":["role"]})",
        .is_required = true},
       [](const Json& value, ChatDraft& into) {
         into.request.messages = parse_chat_messages(value);
       }},
      {{"max_tokens", Type::kInteger, "New tokens at most; absent: as many as there is room for.",
        1, kMaxNewTokens},
       [](const Json& value, ChatDraft& into) { into.request.max_tokens = integer_of(value); }},
      {{"max_completion_tokens", Type::kInteger, "The newer name of max_tokens.", 1, kMaxNewTokens},
       [](const Json& value, ChatDraft& into) { into.max_completion_tokens = integer_of(value); }},
      {{"logprobs", Type::kBoolean, "Whether log-probabilities of tokens are told."},
       [](const Json& value, ChatDraft& into) { into.has_logprobs = value.get<bool>(); }},
      {{"top_logprobs", Type::kInteger, "And those of this many likeliest.", 0, kMaxLogprobs},
       [](const Json& value, ChatDraft& into) {
         into.top_logprobs = static_cast<int>(integer_of(value));
       }},
  };
}

// The tools of which one has to be called, for the grammar of the answer.
void force_call(ChatDraft& draft) {
  ChatRequest& request = draft.request;
  if (draft.tools.is_null()) throw field_error("tool_choice", "tool_choice needs tools");
  if (request.format) {
    throw field_error("tool_choice",
                      "an answer that has to be a call cannot have a form, too: leave out "
                      "tool_choice, or response_format, grammar and regex");
  }
  Json tools = Json::array();
  for (const Json& tool : draft.tools) {
    const Json& function = tool["function"];
    if (draft.function && function["name"] != *draft.function) continue;
    Json one = Json::object({{"name", function["name"]}});
    if (function.contains("parameters") && !function["parameters"].is_null()) {
      one["parameters"] = function["parameters"];
    }
    tools.push_back(std::move(one));
  }
  if (tools.empty()) {
    throw field_error("tool_choice", "tool_choice names a function that is not in tools");
  }
  request.forced_tools = to_text(tools);
  if (draft.function) {
    request.has_one_call = true;
    request.tool_names = {*draft.function};
  }
}

void join(ChatDraft& draft) {
  ChatRequest& request = draft.request;
  if (draft.max_completion_tokens) request.max_tokens = draft.max_completion_tokens;
  if (draft.top_logprobs && !draft.has_logprobs && *draft.top_logprobs > 0) {
    throw field_error("top_logprobs", "top_logprobs needs \"logprobs\": true");
  }
  if (draft.has_logprobs) request.top_logprobs = draft.top_logprobs.value_or(0);
  if (draft.tool_choice == "required") force_call(draft);
  if (draft.tool_choice == "none" || draft.tools.is_null()) {
    request.tool_names.clear();
  } else {
    draft.template_variables["tools"] = draft.tools;
  }
  if (!draft.template_variables.empty()) request.variables = to_text(draft.template_variables);
}

// Parts of a content are texts: nothing here sees pictures or hears.
void check_parts(const Json& message, std::size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.value("text", Json()).is_string();
    if (is_text) continue;
    const std::string name = fmt::format("messages[{}].content[{}]", index, i);
    throw field_error(name, name + R"( must be {"type":"text","text":"..."})");
  }
}

const std::vector<Field<ChatDraft>>& chat_fields() {
  static const std::vector<Field<ChatDraft>> fields = [] {
    std::vector<Field<ChatDraft>> all = main_fields();
    for (Field<ChatDraft>& field : tool_fields()) all.push_back(std::move(field));
    for (Field<ChatDraft>& field : other_fields()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace

std::vector<ChatMessage> parse_chat_messages(const Json& messages) {
  if (messages.empty()) throw field_error("messages", "messages is empty; give one at least");
  Json opened = messages;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    if (!opened[i].is_object()) continue;
    check_parts(opened[i], i);
    open_arguments(opened[i]);
  }
  try {
    return parse_messages(to_text(opened), "messages");
  } catch (const Error& error) {
    throw field_error("messages", error.what());
  }
}

std::vector<FieldRule> chat_rules() {
  std::vector<FieldRule> rules = rules_of(parameter_fields());
  for (const FieldRule& rule : rules_of(chat_fields())) rules.push_back(rule);
  return rules;
}

ChatRequest parse_chat(const Json& body) {
  refuse_unknown(body, chat_rules());
  ChatDraft draft;
  read_fields(body, parameter_fields(), static_cast<Parameters&>(draft.request));
  read_fields(body, chat_fields(), draft);
  join(draft);
  return std::move(draft.request);
}

}  // namespace atl::serve::api
