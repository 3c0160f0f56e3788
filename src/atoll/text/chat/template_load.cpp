// Chat templates and messages from files: Hugging Face directories, JSON.

#include <algorithm>
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
constexpr const char* kDefault = "default";

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

// The templates of {"name": ..., "template": ...} objects.
void read_named(const Json& list, const std::string& origin,
                std::vector<NamedChatTemplate>& templates) {
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      throw user_error(
          "{}: \"chat_template\" is a list, but not of objects with \"name\" and "
          "\"template\"",
          origin);
    }
    const auto name = entry["name"].get<std::string>();
    templates.push_back({name, entry["template"].get<std::string>(),
                         name == kDefault ? origin : fmt::format("{} ({})", origin, name)});
  }
}

// The "chat_template" of a file's object.
void read_member(const Json& object, const std::filesystem::path& path,
                 std::vector<NamedChatTemplate>& templates) {
  const auto inside = object.find("chat_template");
  if (inside == object.end() || inside->is_null()) return;
  const std::string origin = path.string() + ": chat_template";
  if (inside->is_string()) {
    templates.push_back({kDefault, inside->get<std::string>(), origin});
  } else if (inside->is_array()) {
    read_named(*inside, origin, templates);
  } else {
    throw user_error("{}: \"chat_template\" must be a string or a list, not {}", path.string(),
                     inside->type_name());
  }
}

const NamedChatTemplate* find(const std::vector<NamedChatTemplate>& templates,
                              std::string_view name) {
  const auto at = std::find_if(templates.begin(), templates.end(),
                               [&](const NamedChatTemplate& each) { return each.name == name; });
  return at == templates.end() ? nullptr : &*at;
}

void read_additional(const std::filesystem::path& folder,
                     std::vector<NamedChatTemplate>& templates) {
  if (!directory_exists(folder)) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const std::string name = file.stem().string();
    if (find(templates, name) == nullptr) {
      templates.push_back({name, read_file(file), file.string()});
    }
  }
}

[[noreturn]] void throw_absent(const std::vector<NamedChatTemplate>& templates,
                               std::string_view name, const std::filesystem::path& directory) {
  if (templates.empty()) {
    throw user_error(
        "{}: no chat template, neither chat_template.jinja nor \"chat_template\" in "
        "tokenizer_config.json or chat_template.json; give one as a file (--chat-template; in "
        "training data.chat_template)",
        directory.string());
  }
  std::string names;
  for (const NamedChatTemplate& each : templates) {
    names += (names.empty() ? "" : ", ") + each.name;
  }
  throw user_error(
      "{}: no chat template is named \"{}\"; there is {}: give one of these names, or a file "
      "(--chat-template; in training data.chat_template)",
      directory.string(), name, names);
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

std::vector<NamedChatTemplate> chat_templates_in(const std::filesystem::path& directory) {
  std::vector<NamedChatTemplate> templates;
  const std::filesystem::path file = directory / "chat_template.jinja";
  if (path_exists(file)) templates.push_back({kDefault, read_file(file), file.string()});
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    if (!templates.empty()) break;
    const std::filesystem::path path = directory / name;
    read_member(object_file(path), path, templates);
  }
  read_additional(directory / "additional_chat_templates", templates);
  return templates;
}

ChatTemplate ChatTemplate::from_directory(const std::filesystem::path& directory,
                                          std::string_view name) {
  const std::vector<NamedChatTemplate> templates = chat_templates_in(directory);
  const std::string_view wanted = name.empty() ? kDefault : name;
  const NamedChatTemplate* main = find(templates, wanted);
  if (main == nullptr) throw_absent(templates, wanted, directory);
  auto program = std::make_shared<text::ChatProgram>();
  read_tokens(object_file(directory / "tokenizer_config.json"), program->tokens);
  read_tokens(object_file(directory / "special_tokens_map.json"), program->tokens);
  program->origin = main->origin;
  program->main = text::jinja::parse(main->source, main->origin);
  program->sources = main->source;
  const NamedChatTemplate* tool_use = find(templates, "tool_use");
  if (name.empty() && tool_use != nullptr) {
    program->with_tools = text::jinja::parse(tool_use->source, tool_use->origin);
    program->sources += tool_use->source;
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
