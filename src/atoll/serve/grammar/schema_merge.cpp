#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

constexpr int kMaxDepth = 32;

std::int64_t num_values(const Json& value) {
  std::int64_t count = 1;
  if (value.is_structured()) {
    for (const Json& inner : value) count += num_values(inner);
  }
  return count;
}

Json both(const Json& a, const Json& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  return {{"allOf", Json::array({a, b})}};
}

// What a schema says of a property that it does not name.
Json more_of(const Json& schema) {
  return schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
}

Json part_or_empty(const Json& schema, const char* keyword, const std::string& pointer) {
  if (!schema.contains(keyword)) return Json::object();
  if (!schema[keyword].is_object()) refuse_schema(child_pointer(pointer, keyword), "not an object");
  return schema[keyword];
}

// `properties` and `additionalProperties`, which speak of each other's names.
void merge_objects(const Json& a, const Json& b, Json& out, const std::string& pointer) {
  const Json in_a = part_or_empty(a, "properties", pointer);
  const Json in_b = part_or_empty(b, "properties", pointer);
  Json properties = Json::object();
  for (const auto& [name, schema] : in_a.items()) {
    properties[name] = both(schema, in_b.contains(name) ? in_b[name] : more_of(b));
  }
  for (const auto& [name, schema] : in_b.items()) {
    if (!in_a.contains(name)) properties[name] = both(more_of(a), schema);
  }
  if (!properties.empty() || a.contains("properties") || b.contains("properties")) {
    out["properties"] = properties;
  }
  if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
    out["additionalProperties"] = both(more_of(a), more_of(b));
  }
}

Json merged_types(const Json& a, const Json& b, const std::string& pointer) {
  const std::vector<std::string> of_a = types_of({{"type", a}}, pointer);
  const std::vector<std::string> of_b = types_of({{"type", b}}, pointer);
  Json result = Json::array();
  for (const std::string& type : of_a) {
    const auto has = [&](std::string_view name) {
      return std::find(of_b.begin(), of_b.end(), name) != of_b.end();
    };
    if (has(type) || (type == "integer" && has("number"))) {
      result.push_back(type);
    } else if (type == "number" && has("integer")) {
      result.push_back("integer");
    }
  }
  return result;
}

Json merged_alternatives(const Json& a, const Json& b, const std::string& pointer) {
  constexpr std::size_t kMost = 64;
  if (!a.is_array() || !b.is_array()) refuse_schema(pointer, "not a list of schemas");
  if (a.size() * b.size() > kMost) refuse_schema(pointer, "too many alternatives beside others");
  Json result = Json::array();
  for (const Json& first : a) {
    for (const Json& second : b) result.push_back(both(first, second));
  }
  return result;
}

Json common_values(const Json& a, const Json& b) {
  Json result = Json::array();
  for (const Json& value : a) {
    if (std::find(b.begin(), b.end(), value) != b.end()) result.push_back(value);
  }
  return result;
}

Json merged_keyword(const std::string& keyword, const Json& a, const Json& b,
                    const std::string& pointer) {
  if (a == b) return a;
  const std::string here = child_pointer(pointer, keyword);
  const bool are_numbers = a.is_number() && b.is_number();
  if (keyword == "type") return merged_types(a, b, pointer);
  if (keyword == "anyOf") return merged_alternatives(a, b, here);
  if (keyword == "items" && !a.is_array() && !b.is_array()) return both(a, b);
  if (keyword == "enum" && a.is_array() && b.is_array()) {
    Json values = common_values(a, b);
    if (values.empty()) refuse_schema(here, "no value is in all of the lists that apply");
    return values;
  }
  if (keyword == "required" && a.is_array() && b.is_array()) {
    Json result = a;
    for (const Json& name : b) {
      if (std::find(a.begin(), a.end(), name) == a.end()) result.push_back(name);
    }
    return result;
  }
  for (const char* least :
       {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) {
    if (keyword == least && are_numbers) return std::max(a, b);
  }
  for (const char* most :
       {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) {
    if (keyword == most && are_numbers) return std::min(a, b);
  }
  refuse_schema(here, "two different ones apply, which is not supported");
}

}  // namespace

void SchemaDocument::charge(std::int64_t work, const std::string& pointer) const {
  constexpr std::int64_t kMost = 500000;
  work_ += work;
  if (work_ > kMost) refuse_schema(pointer, "too many schemas to merge; write a simpler one");
}

const Json& SchemaDocument::target(const Json& reference, std::string_view pointer) const {
  if (!reference.is_string()) refuse_schema(pointer, "not a text");
  const auto name = reference.get<std::string>();
  if (!name.starts_with('#')) refuse_schema(pointer, "refers to another document");
  std::string path;  // percent signs away
  for (std::size_t i = 1; i < name.size(); ++i) {
    unsigned byte = 0;
    if (name[i] == '%' && i + 2 < name.size() &&
        std::sscanf(name.c_str() + i + 1, "%2x", &byte) == 1) {
      path += static_cast<char>(byte);
      i += 2;
    } else {
      path += name[i];
    }
  }
  try {
    return root_.at(Json::json_pointer(path));
  } catch (const Json::exception&) {
    refuse_schema(pointer, "there is no '" + name.substr(0, 100) + "' in this document");
  }
}

Json SchemaDocument::flattened(const Json& schema, const std::string& pointer, int depth) const {
  if (!schema.is_object()) return schema;
  if (!schema.contains("$ref") && !schema.contains("allOf")) return schema;
  if (depth > kMaxDepth) refuse_schema(pointer, "$ref and allOf lead in a circle");
  Json result = schema;
  result.erase("$ref");
  result.erase("allOf");
  if (schema.contains("$ref")) {
    result =
        merged(result, target(schema["$ref"], child_pointer(pointer, "$ref")), pointer, depth + 1);
  }
  if (schema.contains("allOf")) {
    const std::string here = child_pointer(pointer, "allOf");
    if (!schema["allOf"].is_array()) refuse_schema(here, "not a list of schemas");
    for (const Json& part : schema["allOf"]) result = merged(result, part, pointer, depth + 1);
  }
  return result;
}

Json SchemaDocument::merged(const Json& a, const Json& b, const std::string& pointer,
                            int depth) const {
  charge(num_values(a) + num_values(b), pointer);
  const Json first = flattened(a, pointer, depth), second = flattened(b, pointer, depth);
  for (const Json* schema : {&first, &second}) {
    const Json& other = schema == &first ? second : first;
    if (*schema == false) return false;
    if (*schema == true) return other;
    if (!schema->is_object()) refuse_schema(pointer, "a schema is an object, true or false");
    if (schema->contains("patternProperties") &&
        (other.contains("properties") || other.contains("additionalProperties") ||
         other.contains("required"))) {
      refuse_schema(pointer, "patternProperties together with another schema of objects");
    }
  }
  Json result = Json::object();
  for (const Json* schema : {&first, &second}) {
    for (const auto& [keyword, value] : schema->items()) {
      if (is_annotation(keyword) || keyword == "properties" || keyword == "additionalProperties") {
        continue;
      }
      const bool is_const = keyword == "const";
      const std::string name = is_const ? "enum" : keyword;
      const Json said = is_const ? Json::array({value}) : value;
      result[name] =
          result.contains(name) ? merged_keyword(name, result[name], said, pointer) : said;
    }
  }
  merge_objects(first, second, result, pointer);
  return result;
}

bool SchemaDocument::are_disjoint(const Json& a, const Json& b, const std::string& pointer,
                                  int depth) const {
  if (depth > kMaxDepth) return false;
  charge(num_values(a) + num_values(b), pointer);
  const Json first = flattened(a, pointer), second = flattened(b, pointer);
  if (first == false || second == false) return true;
  if (!first.is_object() || !second.is_object()) return false;
  for (const Json* schema : {&first, &second}) {
    const Json& other = schema == &first ? second : first;
    if (are_disjoint_one_way(*schema, other, pointer, depth)) return true;
  }
  return false;
}

namespace {

std::optional<Json> listed_values(const Json& schema) {
  if (schema.contains("const")) return Json::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  return std::nullopt;
}

bool is_required(const Json& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) return false;
  const Json& list = schema["required"];
  return std::find(list.begin(), list.end(), Json(name)) != list.end();
}

bool has_listed_type(const Json& value, const std::vector<std::string>& types) {
  if (has_type(value, types)) return true;
  return value.is_number() && std::find(types.begin(), types.end(), "integer") != types.end();
}

}  // namespace

bool SchemaDocument::are_disjoint_one_way(const Json& a, const Json& b, const std::string& pointer,
                                          int depth) const {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!a.contains(keyword) || !a[keyword].is_array()) continue;
    const bool all = std::all_of(a[keyword].begin(), a[keyword].end(), [&](const Json& inner) {
      return are_disjoint(inner, b, pointer, depth + 1);
    });
    if (all) return true;
  }
  const auto values = listed_values(a), others = listed_values(b);
  if (values && others) return common_values(*values, *others).empty();
  if (!b.contains("type")) return false;
  const std::vector<std::string> types = types_of(b, pointer);
  if (values) {
    return std::none_of(values->begin(), values->end(),
                        [&](const Json& value) { return has_listed_type(value, types); });
  }
  if (a.contains("type") && merged_types(a["type"], b["type"], pointer).empty()) return true;
  if (types != std::vector<std::string>{"object"}) return false;
  // An object with a property that tells them apart.
  const Json in_a = part_or_empty(a, "properties", pointer);
  const Json in_b = part_or_empty(b, "properties", pointer);
  const bool b_is_closed = more_of(b) == false && !b.contains("patternProperties");
  for (const auto& [name, schema] : in_a.items()) {
    if (!is_required(a, name)) continue;
    if (b_is_closed && !in_b.contains(name)) return true;
    if (is_required(b, name) && in_b.contains(name) &&
        are_disjoint(schema, in_b[name], pointer, depth + 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace atl::serve::grammar
