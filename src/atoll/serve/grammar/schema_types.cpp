#include <algorithm>
#include <array>
#include <utility>

#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

constexpr std::array<std::string_view, 7> kTypes = {"object", "array",   "string", "integer",
                                                    "number", "boolean", "null"};

// Which type a keyword is about; empty: all.
std::string_view type_of_keyword(std::string_view keyword) {
  constexpr std::pair<std::string_view, std::string_view> kKeywords[] = {
      {"properties", "object"},
      {"required", "object"},
      {"additionalProperties", "object"},
      {"patternProperties", "object"},
      {"minProperties", "object"},
      {"maxProperties", "object"},
      {"unevaluatedProperties", "object"},
      {"items", "array"},
      {"prefixItems", "array"},
      {"minItems", "array"},
      {"maxItems", "array"},
      {"uniqueItems", "array"},
      {"additionalItems", "array"},
      {"unevaluatedItems", "array"},
      {"minLength", "string"},
      {"maxLength", "string"},
      {"pattern", "string"},
      {"format", "string"},
      {"minimum", "number"},
      {"maximum", "number"},
      {"exclusiveMinimum", "number"},
      {"exclusiveMaximum", "number"},
      {"multipleOf", "number"}};
  for (const auto& [name, type] : kKeywords) {
    if (name == keyword) return type;
  }
  return {};
}

void add(std::vector<std::string>& types, std::string_view type) {
  if (std::find(types.begin(), types.end(), type) == types.end()) types.emplace_back(type);
}

}  // namespace

bool restricts(std::string_view keyword) {
  return !type_of_keyword(keyword).empty();
}

std::vector<std::string> types_of(const Json& schema, std::string_view pointer) {
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& name : list) {
      const bool is_type = name.is_string() && std::find(kTypes.begin(), kTypes.end(),
                                                         name.get<std::string>()) != kTypes.end();
      if (!is_type) {
        refuse_schema(child_pointer(pointer, "type"),
                      "none of object, array, string, integer, number, boolean, null");
      }
      add(types, name.get<std::string>());
    }
    // Whole numbers are numbers.
    if (std::find(types.begin(), types.end(), "number") != types.end()) {
      std::erase(types, "integer");
    }
    return types;
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (restricts(keyword)) add(types, type_of_keyword(keyword));
  }
  if (types.empty()) {
    for (const std::string_view type : kTypes) {
      if (type != "integer") add(types, type);
    }
  }
  return types;
}

bool has_type(const Json& value, const std::vector<std::string>& types) {
  const auto is_any = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return std::find(types.begin(), types.end(), name) != types.end();
    });
  };
  switch (value.type()) {
    case Json::value_t::object:
      return is_any({"object"});
    case Json::value_t::array:
      return is_any({"array"});
    case Json::value_t::string:
      return is_any({"string"});
    case Json::value_t::boolean:
      return is_any({"boolean"});
    case Json::value_t::null:
      return is_any({"null"});
    case Json::value_t::number_float:
      return is_any({"number"});  // 1.0 is whole, but not for all validators
    default:
      return is_any({"number", "integer"});
  }
}

}  // namespace atl::serve::grammar
