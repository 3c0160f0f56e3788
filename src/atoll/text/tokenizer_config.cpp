#include "atoll/text/tokenizer_config.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/json.h"
#include "atoll/base/paths.h"

namespace atl::text {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

std::optional<bool> flag(const Json& config, const char* key, const std::string& origin) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) {
    throw damaged_error("{}: \"{}\" must be true or false, not {}", origin, key,
                        found->type_name());
  }
  return found->get<bool>();
}

// A token as a text, or as an object with its "content".
std::optional<std::string> token(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  const Json content = found->is_object() ? found->value("content", Json()) : *found;
  if (!content.is_string()) return std::nullopt;
  return content.get<std::string>();
}

}  // namespace

TextFrame read_text_frame(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  if (!path_exists(path)) return {};
  const std::string text = read_file(path);
  const std::string origin = path.string();
  const Json config = parse_json(text, origin);
  if (!config.is_object()) throw damaged_error("{} is not a JSON object", origin);
  return {.add_bos = flag(config, "add_bos_token", origin),
          .add_eos = flag(config, "add_eos_token", origin),
          .bos_token = token(config, "bos_token"),
          .eos_token = token(config, "eos_token"),
          .origin = origin};
}

}  // namespace atl::text
