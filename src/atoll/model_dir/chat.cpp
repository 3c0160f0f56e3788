#include "atoll/model_dir/chat.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/json.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

// A token of tokenizer_config.json: a text, or an object with its "content".
std::string token_of(const nlohmann::json& config, const char* name, const std::string& fallback) {
  const auto at = config.find(name);
  if (at == config.end()) return fallback;
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object() && at->contains("content") && (*at)["content"].is_string()) {
    return (*at)["content"].get<std::string>();
  }
  return fallback;
}

nlohmann::json tokenizer_config(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  if (!path_exists(path)) return nlohmann::json::object();
  nlohmann::json config = parse_json(read_file(path), path.string());
  if (!config.is_object()) throw damaged_error("{} is not a JSON object", path.string());
  return config;
}

// Where a model's chat templates are.
fs::path template_directory(const ModelPath& model) {
  if (!holds_adapter(model) || !chat_templates_in(model).empty()) return model;
  return base_directory(model);
}

std::string names_of(const std::vector<NamedChatTemplate>& templates) {
  std::string names;
  for (const NamedChatTemplate& each : templates) {
    names += (names.empty() ? "" : ", ") + each.name;
  }
  return names.empty() ? "has no chat template" : "has " + names;
}

const NamedChatTemplate* find_named(const std::vector<NamedChatTemplate>& templates,
                                    const std::string& given) {
  for (const NamedChatTemplate& each : templates) {
    if (each.name == given) return &each;
  }
  std::size_t place = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), place);
  const bool is_place = error == std::errc() && end == given.data() + given.size();
  return is_place && place < templates.size() ? &templates[place] : nullptr;
}

}  // namespace

std::optional<NamedChatTemplate> named_chat_template(const fs::path& given,
                                                     const ModelPath& model) {
  if (given.empty() || model.empty() || path_exists(given)) return std::nullopt;
  const std::vector<NamedChatTemplate> templates = chat_templates_in(template_directory(model));
  const NamedChatTemplate* found = find_named(templates, given.string());
  if (found == nullptr) return std::nullopt;
  return *found;
}

ChatTemplate find_chat_template(const fs::path& given, const ModelPath& model,
                                const Tokenizer& tokenizer) {
  if (given.empty()) return ChatTemplate::from_directory(template_directory(model));
  if (directory_exists(given)) return ChatTemplate::from_directory(given);
  if (!path_exists(given)) {
    if (const auto named = named_chat_template(given, model)) {
      return ChatTemplate::from_directory(template_directory(model), named->name);
    }
    if (model.empty()) throw user_error("there is no chat template {}", given.string());
    const fs::path home = template_directory(model);
    throw user_error("there is no chat template {}: no such file, and {} {}", given.string(),
                     home.string(), names_of(chat_templates_in(home)));
  }
  const nlohmann::json config =
      model.empty() ? nlohmann::json::object() : tokenizer_config(tokenizer_directory(model));
  const auto end = tokenizer.end_of_text();
  const std::string eos = end ? std::string(tokenizer.token_bytes(*end)) : "";
  return ChatTemplate::from_text(read_text_file(given), token_of(config, "bos_token", ""),
                                 token_of(config, "eos_token", eos), given.string());
}

EndOfTurn end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  constexpr std::string_view kAnswer = "Quite so";
  std::string text;
  try {
    text = chat.render({{"user", "Is it?", ""}, {"assistant", std::string(kAnswer), ""}});
  } catch (const Error&) {
    return {};  // it wants other messages; those of the data tell whether it can write them
  }
  const std::size_t answer = text.rfind(kAnswer);
  if (answer == std::string::npos) return {};
  constexpr const char* kWhiteSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kWhiteSpace, answer + kAnswer.size());
  if (begin == std::string::npos) return {};
  EndOfTurn end;
  end.text = text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
  std::vector<std::int32_t> tokens;
  try {
    TokenEncoder(tokenizer).encode(end.text, tokens, {.parse_special = true});
  } catch (const Error&) {
    return end;  // a tokenizer of characters without these
  }
  if (!tokens.empty() && tokenizer.is_special(tokens.front())) end.token = tokens.front();
  return end;
}

std::vector<std::int32_t> chat_stop_tokens(std::vector<std::int32_t> stops,
                                           const ChatTemplate& chat, const Tokenizer& tokenizer) {
  if (const auto end = end_of_turn(chat, tokenizer).token) stops.push_back(*end);
  std::ranges::sort(stops);
  stops.erase(std::ranges::unique(stops).begin(), stops.end());
  return stops;
}

std::string problem_of(const EndOfTurn& end) {
  if (end.token) return "";
  if (end.text.empty()) {
    return "the chat template writes nothing behind an answer, so the model never learns to stop; "
           "let it write a special token there";
  }
  return fmt::format(
      "the chat template ends an answer with \"{}\", which is no special token of the tokenizer, "
      "so "
      "generation does not stop there; make the tokenizer with data.special_tokens (atoll "
      "tokenize: "
      "--special-token), or take a template that ends answers with a token that there is",
      end.text);
}

std::string with_stop_token(const std::string& generation_config, std::int32_t token,
                            const std::vector<std::int64_t>& of_config) {
  auto config = nlohmann::ordered_json::object();
  if (!generation_config.empty()) {
    config = nlohmann::ordered_json::parse(generation_config, nullptr, false);
    if (!config.is_object()) throw user_error("generation_config.json is not a JSON object");
  }
  std::vector<std::int64_t> old;
  if (const auto at = config.find("eos_token_id"); at != config.end()) {
    for (const auto& id : at->is_array() ? *at : nlohmann::ordered_json::array({*at})) {
      if (id.is_number_integer() && id >= 0) old.push_back(id.get<std::int64_t>());
    }
  }
  const bool is_stated = !old.empty();
  if (!is_stated) old = of_config;
  const bool is_there = std::find(old.begin(), old.end(), token) != old.end();
  if (is_there && (is_stated || generation_config.empty())) return generation_config;
  auto ids = nlohmann::ordered_json::array();
  if (!is_there) ids.push_back(token);
  for (const std::int64_t id : old) ids.push_back(id);
  config["eos_token_id"] = ids.size() == 1 ? ids.front() : ids;
  // With this entry transformers would take the tokens of config.json instead.
  config.erase("_from_model_config");
  return config.dump(2) + "\n";
}

}  // namespace atl::model_dir
