// Chat templates and messages from files: Hugging Face directories, JSON.

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
#include "atoll/text/chat/program.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/jinja/parser.h"

namespace atl {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxNesting = 50;

Json parse(std::string_view text, std::string_view origin) {
  return parse_ordered_json(text, origin, {.max_depth = kMaxNesting, .refusal = ErrorKind::kUser});
}

// A file of a directory as a JSON object; an empty one where there is no such file.
Json object_file(const std::filesystem::path& path) {
  if (!path_exists(path)) return Json::object();
  Json made = parse(read_file(path), path.string());
  if (!made.is_object()) throw user_error("{}: not a JSON object", path.string());
  return made;
}

// Takes every "..._token" that is "</s>" or {"content": "</s>", ...}, as an AddedToken is written.
// What a file read earlier says stays.
void read_tokens(const Json& from, text::jinja::Dict& tokens) {
  for (const auto& [key, value] : from.items()) {
    if (!key.ends_with("_token") || tokens.find(key) != nullptr) continue;
    const Json* content = &value;
    if (value.is_object() && value.contains("content")) content = &value["content"];
    if (!content->is_string()) continue;
    tokens.set(text::jinja::Value(key), key, text::jinja::Value(content->get<std::string>()));
  }
}

void set_main(text::ChatProgram& program, const std::string& source) {
  program.main = text::jinja::parse(source, program.origin);
  program.sources += source;
}

void set_with_tools(text::ChatProgram& program, const std::string& source,
                    const std::string& origin) {
  program.with_tools = text::jinja::parse(source, origin);
  program.sources += source;
}

// The templates of {"name": ..., "template": ...} objects.
void read_named(const Json& list, text::ChatProgram& program) {
  bool has_default = false;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      throw user_error(
          "{}: \"chat_template\" is a list, but not of objects with \"name\" and "
          "\"template\"",
          program.origin);
    }
    const auto name = entry["name"].get<std::string>();
    const auto source = entry["template"].get<std::string>();
    if (name == "default") {
      set_main(program, source);
      has_default = true;
    } else if (name == "tool_use") {
      set_with_tools(program, source, program.origin + " (tool_use)");
    }
  }
  if (!has_default) {
    throw user_error(
        "{}: \"chat_template\" is a list without one named \"default\"; give the one "
        "to use as a file (--chat-template; in training data.chat_template)",
        program.origin);
  }
}

// The "chat_template" of a file's object. False: there is none.
bool read_member(const Json& object, const std::filesystem::path& path,
                 text::ChatProgram& program) {
  const auto inside = object.find("chat_template");
  if (inside == object.end() || inside->is_null()) return false;
  program.origin = path.string() + ": chat_template";
  if (inside->is_string()) {
    set_main(program, inside->get<std::string>());
  } else if (inside->is_array()) {
    read_named(*inside, program);
  } else {
    throw user_error("{}: \"chat_template\" must be a string or a list, not {}", path.string(),
                     inside->type_name());
  }
  return true;
}

// What fine-tuning files say of one message: OpenAI's "weight" (0 or 1), axolotl's "train".
bool has_loss(const Json& message, const std::string& role, const std::string& where) {
  bool result = true;
  if (const auto weight = message.find("weight"); weight != message.end() && !weight->is_null()) {
    if (!weight->is_number() || (*weight != 0 && *weight != 1)) {
      throw user_error("{}: \"weight\" is {}; a message is learnt (1) or not (0)", where,
                       weight->dump());
    }
    result = *weight == 1;
  }
  for (const char* key : {"train", "training"}) {
    const auto train = message.find(key);
    if (train == message.end() || train->is_null()) continue;
    if (!train->is_boolean()) {
      throw user_error("{}: \"{}\" must be true or false, not {}", where, key, train->dump());
    }
    if (*train == true && role != "assistant") {
      throw user_error(
          "{}: \"{}\" is true for the role \"{}\", and atoll learns what \"assistant\" says; "
          "take it out",
          where, key, role);
    }
    result = result && train->get<bool>();
  }
  if (const auto detail = message.find("train_detail");
      detail != message.end() && !detail->is_null()) {
    throw user_error(
        "{}: has \"train_detail\", and atoll learns whole messages; take it out, or "
        "cut the message",
        where);
  }
  return result;
}

ChatMessage parse_message(const Json& json, std::size_t index, std::string_view origin) {
  if (!json.is_object()) {
    throw user_error("{}: message {} is not an object with \"role\" and \"content\"", origin,
                     index);
  }
  const auto role = json.find("role");
  if (role == json.end() || !role->is_string()) {
    throw user_error("{}: message {}: \"role\" must be a string such as \"user\"", origin, index);
  }
  ChatMessage message{.role = role->get<std::string>(), .content = {}, .extra = {}};
  Json extra = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key == "role" || value.is_null()) continue;
    if (key != "content") {
      extra.get_ref<Json::object_t&>().emplace_back(key, value);  // keys differ already
    } else if (value.is_string()) {
      message.content = value.get<std::string>();
    } else if (value.is_array()) {
      extra.get_ref<Json::object_t&>().emplace_back(key, value);  // keys differ already
    } else {
      throw user_error("{}: message {}: \"content\" must be a string or a list of parts, not {}",
                       origin, index, value.type_name());
    }
  }
  if (!message.content.has_value() && extra.empty()) {
    throw user_error("{}: message {}: has no \"content\"", origin, index);
  }
  if (!extra.empty()) message.extra = extra.dump();
  message.has_loss = has_loss(json, message.role, fmt::format("{}: message {}", origin, index));
  return message;
}

}  // namespace

ChatTemplate ChatTemplate::from_directory(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "chat_template.jinja";
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const std::filesystem::path processor_path = directory / "chat_template.json";
  const Json config = object_file(config_path);
  auto program = std::make_shared<text::ChatProgram>();
  read_tokens(config, program->tokens);
  read_tokens(object_file(directory / "special_tokens_map.json"), program->tokens);
  if (path_exists(file)) {
    program->origin = file.string();
    set_main(*program, read_file(file));
  } else if (!read_member(config, config_path, *program) &&
             !read_member(object_file(processor_path), processor_path, *program)) {
    throw user_error(
        "{}: no chat template, neither chat_template.jinja nor \"chat_template\" in "
        "tokenizer_config.json or chat_template.json; give one as a file (--chat-template; in "
        "training data.chat_template)",
        directory.string());
  }
  const auto tool_use = directory / "additional_chat_templates" / "tool_use.jinja";
  if (!program->with_tools && path_exists(tool_use)) {
    set_with_tools(*program, read_file(tool_use), tool_use.string());
  }
  return ChatTemplate(std::move(program));
}

std::vector<ChatMessage> parse_messages(std::string_view json, std::string_view origin) {
  const Json parsed = parse(json, origin);
  if (!parsed.is_array()) {
    throw user_error("{}: messages must be a list, not {}", origin, parsed.type_name());
  }
  std::vector<ChatMessage> messages;
  for (const Json& each : parsed) {
    messages.push_back(parse_message(each, messages.size(), origin));
  }
  return messages;
}

}  // namespace atl
