#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::text {

std::string type_of(const Json& value) {
  if (!value.is_object()) return value.is_null() ? "null" : value.type_name();
  const auto type = value.find("type");
  return type != value.end() && type->is_string() ? type->get<std::string>() : "untyped";
}

void JsonReader::damaged(std::string_view where, std::string_view what) const {
  throw damaged_error("{}: {}: {}", origin_, where, what);
}

void JsonReader::refuse(std::string_view where, std::string_view what,
                        std::string_view advice) const {
  throw user_error("{}: {} has {}, which is not supported ({})", origin_, where, what, advice);
}

void JsonReader::object(const Json& value, std::string_view where,
                        std::initializer_list<std::string_view> known) const {
  if (!value.is_object()) damaged(where, fmt::format("must be an object, not {}", type_of(value)));
  for (const auto& [key, content] : value.items()) {
    if (content.is_null() || content == false || content == "") continue;
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      refuse(where, fmt::format("the key \"{}\"", key), "it could change the result");
    }
  }
}

const Json& JsonReader::need(const Json& value, const char* key, std::string_view where) const {
  if (!value.is_object()) damaged(where, fmt::format("must be an object, not {}", type_of(value)));
  const auto found = value.find(key);
  if (found == value.end()) damaged(where, fmt::format("the key \"{}\" is missing", key));
  return *found;
}

const Json& JsonReader::array(const Json& value, std::string_view where) const {
  if (!value.is_array()) damaged(where, fmt::format("must be an array, not {}", type_of(value)));
  return value;
}

std::string JsonReader::text(const Json& value, std::string_view where) const {
  if (!value.is_string()) damaged(where, fmt::format("must be a string, not {}", value.dump()));
  return value.get<std::string>();
}

bool JsonReader::flag(const Json& value, const char* key, bool otherwise,
                      std::string_view where) const {
  const auto found = value.find(key);
  if (found == value.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) damaged(where, fmt::format("\"{}\" must be true or false", key));
  return found->get<bool>();
}

std::int32_t JsonReader::id(const Json& value, std::string_view where) const {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_integer() || (value.is_number_unsigned() && value > kMax) || value < 0) {
    damaged(where, fmt::format("{} is not a token id", value.dump()));
  }
  return value.get<std::int32_t>();
}

std::pair<std::string, bool> JsonReader::pattern(const Json& json, const std::string& where) const {
  const Json& value = need(json, "pattern", where);
  object(value, where + ".pattern", {"Regex", "String"});
  if (value.size() != 1) damaged(where + ".pattern", "must hold one of Regex and String");
  return {text(value.front(), where + ".pattern"), value.contains("String")};
}

std::string JsonReader::replacement(const Json& json, const std::string& where) const {
  std::string value = text(need(json, "replacement", where), where + ".replacement");
  if (value.empty() || utf8_step(value).size != value.size() || value == " ") {
    damaged(where, fmt::format("the replacement \"{}\" must be one character, not a space", value));
  }
  return value;
}

PreTokenizerStep::Prepend JsonReader::prepend_scheme(const Json& json,
                                                     const std::string& where) const {
  using Prepend = PreTokenizerStep::Prepend;
  const bool adds = flag(json, "add_prefix_space", true, where);
  if (!json.contains("prepend_scheme")) return adds ? Prepend::kAlways : Prepend::kNever;
  const std::string scheme = text(json["prepend_scheme"], where + ".prepend_scheme");
  if (!adds && scheme != "never") {
    refuse(where, "add_prefix_space false with prepend_scheme " + scheme,
           "remove the one that is wrong");
  }
  if (scheme == "always") return Prepend::kAlways;
  if (scheme == "first") return Prepend::kFirst;
  if (scheme != "never") refuse(where, "prepend_scheme " + scheme, "always, first and never are");
  return Prepend::kNever;
}

}  // namespace atl::text
