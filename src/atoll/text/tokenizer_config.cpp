#include "atoll/text/tokenizer_config.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"

namespace atl::text {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// A file that people edit and programs write, as an object; an empty one where there is no file.
Json object_of(const fs::path& path, std::uint64_t max_bytes = kMaxFileBytes) {
  const std::string origin = path.string();
  if (!path_exists(path)) return Json::object();
  Json config = parse_json(read_file(path, max_bytes), origin, {.refusal = ErrorKind::kUser});
  if (!config.is_object()) throw user_error("{} is not a JSON object", origin);
  return config;
}

std::optional<bool> flag(const Json& config, const char* key, const std::string& origin) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) {
    throw user_error("{}: \"{}\" must be true or false, not {}", origin, key, found->type_name());
  }
  return found->get<bool>();
}

// A token as a text, or as an object with its "content".
std::optional<std::string> token(const Json& config, const char* key, const std::string& origin) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  const Json content = found->is_object() ? found->value("content", Json()) : *found;
  if (content.is_string()) return content.get<std::string>();
  throw user_error("{}: \"{}\" must be a token's text, or an object with it as \"content\", not {}",
                   origin, key, content.type_name());
}

RecordedFrame recorded_frame(const Json& tokenizer) {
  RecordedFrame frame;
  const Json& end = tokenizer.at("end_of_text");
  if (!end.is_null()) frame.end_of_text = whole_number<std::int32_t>(end);
  const auto read = [&](const char* key, std::vector<std::int32_t>& ids) {
    for (const Json& id : tokenizer.at(key)) ids.push_back(whole_number<std::int32_t>(id));
  };
  read("before", frame.before);
  read("after", frame.after);
  return frame;
}

}  // namespace

TextFrame read_text_frame(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  const fs::path map_path = directory / "special_tokens_map.json";
  TextFrame frame;
  frame.directory = directory.string();
  if (path_exists(path)) frame.origin = path.string();
  const Json config = object_of(path);
  const Json map = object_of(map_path);
  frame.add_bos = flag(config, "add_bos_token", frame.origin);
  frame.add_eos = flag(config, "add_eos_token", frame.origin);
  const auto read = [&](const char* key) {
    const auto found = token(config, key, frame.origin);
    return found ? found : token(map, key, map_path.string());
  };
  frame.bos_token = read("bos_token");
  frame.eos_token = read("eos_token");
  frame.eos_ids = read_eos_ids(directory / "generation_config.json");
  if (frame.eos_ids.empty()) frame.eos_ids = read_eos_ids(directory / "config.json");
  // That of a corpus which an older program made has no such record.
  const fs::path corpus = directory / "corpus.json";
  const Json manifest = object_of(corpus, kMaxListBytes);
  const auto tokenizer = manifest.find("tokenizer");
  if (tokenizer == manifest.end() || !tokenizer->contains("end_of_text")) return frame;
  try {
    frame.recorded = recorded_frame(*tokenizer);
  } catch (const std::exception& error) {
    throw user_error("{} is damaged: {}; run atoll tokenize again", corpus.string(),
                     json_reason(error));
  }
  return frame;
}

std::vector<std::int64_t> read_eos_ids(const fs::path& file) {
  Json config = object_of(file);
  // That of a multimodal model may have it in that of its language model.
  if (!config.contains("eos_token_id") && config.contains("text_config")) {
    config = config.at("text_config");
  }
  const auto at = config.find("eos_token_id");
  if (at == config.end() || at->is_null()) return {};
  std::vector<std::int64_t> ids;
  for (const Json& id : at->is_array() ? *at : Json::array({*at})) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // beyond any vocabulary
    const bool is_id = id.is_number_unsigned()
                           ? id.get<std::uint64_t>() <= kMost
                           : id.is_number_integer() && id.get<std::int64_t>() == -1;
    if (!is_id) {
      throw user_error(
          "{}: \"eos_token_id\" is {}, and a token's id is a whole number, 0 or more; null or -1 "
          "says that there is none",
          file.string(), at->dump());
    }
    if (id.is_number_unsigned()) ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

}  // namespace atl::text
