#include "atoll/serve/api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"

namespace atl::serve::api {

namespace {

const char* name_of(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "true or false";
    case FieldType::kInteger:
      return "a whole number";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kString:
      return "a string";
    case FieldType::kObject:
      return "an object";
    case FieldType::kArray:
      return "a list";
    default:
      return "another value";
  }
}

bool has_type(const Json& value, FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return value.is_boolean();
    case FieldType::kInteger:
      return value.is_number_integer();
    case FieldType::kNumber:
      return value.is_number();
    case FieldType::kString:
      return value.is_string();
    case FieldType::kObject:
      return value.is_object();
    case FieldType::kArray:
      return value.is_array();
    default:
      return true;
  }
}

// A value as a message shows it, however long it is.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  const std::string text = to_text(value);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string bounds_of(const FieldRule& rule) {
  if (rule.is_above_least) return fmt::format("above {} and at most {}", rule.least, rule.most);
  if (std::isinf(rule.most)) return fmt::format("{} or more", rule.least);
  return fmt::format("from {} to {}", rule.least, rule.most);
}

// An object's members are looked for one by one: of very many that takes seconds, for which all
// other requests wait.
constexpr int kMaxMembers = 2048;

// Counts colons between brackets, of a text that may be no JSON at all.
void refuse_wide_objects(std::string_view body) {
  std::vector<int> members = {0};
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      members.push_back(0);
    } else if ((c == '}' || c == ']') && members.size() > 1) {
      members.pop_back();
    } else if (c == ':' && ++members.back() > kMaxMembers) {
      throw ApiError(400,
                     fmt::format("an object of the request has more than {} members", kMaxMembers));
    }
  }
}

}  // namespace

const Json* find_field(const Json& object, const FieldRule& rule, std::string_view where) {
  const std::string name = std::string(where) + rule.name;
  const auto found = object.find(rule.name);
  const bool is_absent = found == object.end() || found->is_null();
  if (is_absent) {
    if (!rule.is_required) return nullptr;
    throw field_error(name, fmt::format("{} is missing: {}", name, rule.help),
                      "missing_required_parameter");
  }
  if (rule.type == FieldType::kRefused) {
    throw field_error(name, fmt::format("{} is not supported: {}", name, rule.help),
                      "unsupported_parameter");
  }
  if (!has_type(*found, rule.type)) {
    throw field_error(name,
                      fmt::format("{} must be {}, not {}", name, name_of(rule.type), shown(*found)),
                      "invalid_type");
  }
  if (rule.type == FieldType::kInteger || rule.type == FieldType::kNumber) {
    const double number = found->get<double>();
    const bool is_below = number < rule.least || (rule.is_above_least && number == rule.least);
    if (is_below || number > rule.most) {
      throw field_error(name,
                        fmt::format("{} must be {}, not {}", name, bounds_of(rule), shown(*found)));
    }
  }
  return &*found;
}

void refuse_unknown(const Json& object, const std::vector<FieldRule>& rules,
                    std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    const bool is_known =
        std::any_of(rules.begin(), rules.end(),
                    [&name = key](const FieldRule& rule) { return name == rule.name; });
    if (is_known) continue;
    const std::string name = std::string(where) + key.substr(0, 100);
    throw field_error(name, fmt::format("{} is no field of this request; leave it out", name),
                      "unknown_parameter");
  }
}

Json parse_body(std::string_view body) {
  refuse_wide_objects(body);
  Json json;
  try {
    json = parse_ordered_json(body, "the request", {.refusal = ErrorKind::kUser});
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
  if (!json.is_object()) {
    throw ApiError(400, "the request must be a JSON object", "", "invalid_json");
  }
  return json;
}

std::int64_t integer_of(const Json& value) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  if (!value.is_number_unsigned()) return value.get<std::int64_t>();
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(value.get<std::uint64_t>(), static_cast<std::uint64_t>(kMost)));
}

}  // namespace atl::serve::api
