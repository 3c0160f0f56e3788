#include "atoll/data/jsonl/foreign_rows.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/nesting.h"
#include "atoll/data/fields.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;
using Json = nlohmann::ordered_json;

constexpr const char* kAlpacaText =
    "Alpaca (instruction, input, output), as prompt and completion in the words of Stanford's "
    "Alpaca; data.fields.chat (--chat) makes conversations of them";
constexpr const char* kAlpacaChat =
    "Alpaca (instruction, input, output), as conversations: the user says instruction and input, "
    "the assistant output";
constexpr const char* kShareGpt =
    "ShareGPT (conversations), as messages: human is the user, gpt the assistant, observation and "
    "function_response a tool";

// The value of a key, unless that is absent or null.
std::optional<dom::element> find(const dom::object& object, std::string_view key) {
  dom::element value;
  if (object.at_key(key).get(value) || value.is_null()) return std::nullopt;
  return value;
}

std::optional<std::string> text_of(const dom::object& object, std::string_view key) {
  const auto value = find(object, key);
  std::string_view text;
  if (!value || value->get(text)) return std::nullopt;
  return std::string(text);
}

bool is_empty(const dom::element& value) {
  std::string_view text;
  dom::array list;
  if (!value.get(text)) return text.empty();
  return !value.get(list) && list.size() == 0;
}

// Keys that such rows may have, and that would change what is learnt.
void refuse_key(const dom::object& object, const char* key, const char* remedy,
                const std::string& origin) {
  const auto value = find(object, key);
  if (!value || is_empty(*value)) return;
  throw user_error("{} has \"{}\" beside the keys of other programs; {}", origin, key, remedy);
}

// As Taori et al. 2023 (github.com/tatsu-lab/stanford_alpaca) write it.
std::string alpaca_prompt(const std::string& instruction, const std::string& input) {
  if (input.empty()) {
    return fmt::format(
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n{}\n\n### Response:\n",
        instruction);
  }
  return fmt::format(
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n",
      instruction, input);
}

// The rounds before an instruction, as LLaMA-Factory keeps them: [["question", "answer"], ...].
void add_history(const dom::object& object, const std::string& origin, Json& messages) {
  const auto history = find(object, "history");
  if (!history || is_empty(*history)) return;
  const auto fail = [&] {
    return user_error("{} has a \"history\" that is no list of pairs of texts", origin);
  };
  dom::array rounds;
  if (history->get(rounds)) throw fail();
  for (const dom::element& round : rounds) {
    dom::array pair;
    if (round.get(pair) || pair.size() != 2) throw fail();
    for (const std::size_t i : {0U, 1U}) {
      std::string_view text;
      if (pair.at(i).get(text)) throw fail();
      messages.push_back({{"role", i == 0 ? "user" : "assistant"}, {"content", std::string(text)}});
    }
  }
}

bool read_alpaca(const dom::object& object, bool chat, const std::string& origin, JsonlLine& line) {
  const auto instruction = text_of(object, "instruction");
  const auto output = text_of(object, "output");
  if (!instruction || !output) return false;
  const auto input_value = find(object, "input");
  const auto input = text_of(object, "input");
  if (input_value && !input) throw user_error("{} has an \"input\" that is not a string", origin);
  const auto system = text_of(object, "system");
  if (!chat) {
    for (const char* key : {"system", "history"}) {
      refuse_key(object, key, "make conversations of these rows: data.fields.chat (--chat)",
                 origin);
    }
    line.kind = JsonlKind::kCompletion;
    line.text = alpaca_prompt(*instruction, input.value_or(""));
    line.completion = line.text.size();
    line.text += *output;
    line.mapping = kAlpacaText;
    return true;
  }
  Json messages = Json::array();
  if (system && !system->empty()) messages.push_back({{"role", "system"}, {"content", *system}});
  add_history(object, origin, messages);
  const bool has_input = input && !input->empty();
  messages.push_back(
      {{"role", "user"}, {"content", *instruction + (has_input ? "\n\n" + *input : "")}});
  messages.push_back({{"role", "assistant"}, {"content", *output}});
  line.kind = JsonlKind::kMessages;
  line.text = messages.dump();
  line.mapping = kAlpacaChat;
  return true;
}

// A message of this name is a tool call of the assistant: its text is JSON.
constexpr std::string_view kFunctionCall = "function_call";

// Empty for a role that no message of a chat template has.
std::string_view role_of_sharegpt(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kRoles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"chatgpt", "assistant"},
       {"bing", "assistant"},
       {"bard", "assistant"},
       {"assistant", "assistant"},
       {"model", "assistant"},
       {kFunctionCall, "assistant"},
       {"system", "system"},
       {"tool", "tool"},
       {"observation", "tool"},
       {"function_response", "tool"}}};
  for (const auto& [from, role] : kRoles) {
    if (from == name) return role;
  }
  return "";
}

}  // namespace

bool has_sharegpt_messages(const dom::element& messages) {
  dom::array list;
  if (messages.get(list) || list.size() == 0) return false;
  dom::object first;
  if (list.at(0).get(first)) return false;
  return find(first, "from") && find(first, "value") && !find(first, "role");
}

namespace {

// {"name": ..., "arguments": {...}}, or several of them, as calls in OpenAI's form.
Json tool_calls(const std::string& text, const std::string& origin) {
  constexpr int kMaxNesting = 64;
  Json calls = nesting_depth(text) > kMaxNesting
                   ? Json()
                   : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (calls.is_object()) calls = Json::array({calls});
  Json all = Json::array();
  const auto is_call = [](const Json& call) {
    return call.is_object() && call.contains("name") && call["name"].is_string() &&
           call.contains("arguments");
  };
  if (!calls.is_array() || calls.empty() || !std::all_of(calls.begin(), calls.end(), is_call)) {
    throw user_error(
        "{} has a message from \"function_call\" that is no JSON object with \"name\" and "
        "\"arguments\"; mend it, or say that it is text: --field role=from --field content=value "
        "--field roles=function_call=assistant (data.fields of a recipe)",
        origin);
  }
  for (const Json& call : calls) {
    Json function = {{"name", call["name"]}, {"arguments", call["arguments"]}};
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

// Puts tool calls in the place of the texts of messages that are calls.
std::string with_tool_calls(const std::string& messages, const std::vector<std::size_t>& calls,
                            const std::string& origin) {
  Json list = Json::parse(messages);
  for (const std::size_t at : calls) {
    Json& message = list.at(at);
    const auto content = message.find("content");
    message["tool_calls"] =
        tool_calls(content->is_string() ? content->get<std::string>() : "", origin);
    message["content"] = "";
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string sharegpt_messages(const dom::element& messages, const std::string& origin) {
  Fields fields;
  fields.role = "from";
  fields.content = "value";
  dom::array list;
  if (messages.get(list)) throw user_error("{}: the messages must be a list", origin);
  std::vector<std::size_t> calls;
  std::size_t index = 0;
  for (const dom::element& each : list) {
    const std::size_t here = index++;
    dom::object message;
    if (each.get(message)) continue;  // plain_messages names it
    const auto from = text_of(message, "from");
    if (!from) continue;
    const std::string_view role = role_of_sharegpt(*from);
    if (role.empty()) {
      throw user_error(
          "{} has a message from \"{}\", and of ShareGPT's rows human, user, gpt, chatgpt, bing, "
          "bard, model, assistant, system, tool, observation, function_call and function_response "
          "are "
          "known; say "
          "what each is: --field role=from --field content=value --field roles={}=assistant "
          "(data.fields of a recipe)",
          origin, *from, *from);
    }
    if (role != *from) fields.roles.push_back(fmt::format("{}={}", *from, role));
    if (*from == kFunctionCall) calls.push_back(here);
  }
  const std::string plain = plain_messages(fields, simdjson::minify(messages), origin);
  return calls.empty() ? plain : with_tool_calls(plain, calls, origin);
}

bool is_foreign_key(std::string_view key) {
  constexpr std::array<std::string_view, 6> kKeys = {"conversations", "instruction", "input",
                                                     "output",        "system",      "history"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

bool read_foreign_row(const dom::object& object, bool chat, const std::string& origin,
                      JsonlLine& line) {
  const auto conversations = find(object, "conversations");
  if (!conversations || !conversations->is_array()) return read_alpaca(object, chat, origin, line);
  line.kind = JsonlKind::kMessages;
  line.mapping = kShareGpt;
  line.text = has_sharegpt_messages(*conversations) ? sharegpt_messages(*conversations, origin)
                                                    : simdjson::minify(*conversations);
  const auto system = text_of(object, "system");
  if (!system || system->empty()) return true;
  Json messages = Json::parse(line.text, nullptr, false);
  if (!messages.is_array()) throw user_error("{}: the messages must be a list", origin);
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *system}});
  line.text = messages.dump(-1, ' ', false, Json::error_handler_t::replace);
  return true;
}

std::string advice_on_keys(const dom::object& object) {
  constexpr std::size_t kShown = 8;
  std::string keys;
  std::size_t count = 0;
  for (const dom::key_value_pair field : object) {
    if (count++ >= kShown) continue;
    keys += fmt::format("{}{}", keys.empty() ? "" : ", ", field.key);
  }
  if (count == 0) return "it has no key";
  if (count > kShown) keys += fmt::format(" and {} more", count - kShown);
  using Pair = std::pair<const char*, const char*>;
  constexpr std::array<Pair, 12> kPairs = {{{"question", "answer"},
                                            {"question", "response"},
                                            {"instruction", "response"},
                                            {"instruction", "answer"},
                                            {"instruction", "completion"},
                                            {"query", "response"},
                                            {"query", "answer"},
                                            {"prompt", "response"},
                                            {"prompt", "answer"},
                                            {"prompt", "chosen"},
                                            {"input", "output"},
                                            {"source", "target"}}};
  for (const auto& [prompt, completion] : kPairs) {
    if (!find(object, prompt) || !find(object, completion)) continue;
    return fmt::format(
        "its keys are {}: --field prompt={} --field completion={} reads them (data.fields of a "
        "recipe)",
        keys, prompt, completion);
  }
  for (const char* text : {"content", "body", "document", "story", "code"}) {
    if (!find(object, text)) continue;
    return fmt::format("its keys are {}: --field text={} reads it (data.fields of a recipe)", keys,
                       text);
  }
  return fmt::format(
      "its keys are {}; --field FIELD=KEY says which is what (data.fields of a recipe)", keys);
}

}  // namespace atl::data
