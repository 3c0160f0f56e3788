#include "atoll/train/chat.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::train {

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
  if (!fs::exists(path)) return nlohmann::json::object();
  nlohmann::json config = nlohmann::json::parse(read_file(path), nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    throw damaged_error("{} is not a JSON object", path.string());
  }
  return config;
}

}  // namespace

ChatTemplate find_chat_template(const fs::path& given, const fs::path& model_directory,
                                const Tokenizer& tokenizer) {
  if (given.empty()) return ChatTemplate::from_directory(model_directory);
  if (fs::is_directory(given)) return ChatTemplate::from_directory(given);
  if (!fs::exists(given)) throw user_error("there is no chat template {}", given.string());
  const nlohmann::json config = tokenizer_config(model_directory);
  const auto end = tokenizer.end_of_text();
  const std::string eos = end ? std::string(tokenizer.token_bytes(*end)) : "";
  return ChatTemplate::from_text(read_file(given), token_of(config, "bos_token", ""),
                                 token_of(config, "eos_token", eos), given.string());
}

}  // namespace atl::train
