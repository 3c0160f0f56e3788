#include "atoll/serve/grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

constexpr int kMaxDepth = 64;

// Keywords that restrict instances in ways that a grammar of this kind does not follow.
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "dependentSchemas",
                                         "dependencies",
                                         "propertyNames",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "extends",
                                         "disallow",
                                         "divisibleBy"};

bool says_nothing(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "unevaluatedProperties" || keyword == "unevaluatedItems") {
    return value.is_boolean();  // without the rest of its kind: the grammar adds none
  }
  return std::find(std::begin(kRefused), std::end(kRefused), keyword) == std::end(kRefused);
}

void refuse_unsupported(const Json& schema, const std::string& pointer) {
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword == "uniqueItems" && schema.contains("maxItems") && schema["maxItems"].is_number() &&
        schema["maxItems"] <= 1) {
      continue;
    }
    if (!says_nothing(keyword, value)) {
      refuse_schema(child_pointer(pointer, keyword), "this keyword is not supported");
    }
  }
}

// A schema without what says nothing about instances; of a $ref, what stands beside it.
bool has_neighbours(const Json& schema) {
  return std::any_of(schema.items().begin(), schema.items().end(), [](const auto& item) {
    return item.key() != "$ref" && !is_annotation(item.key());
  });
}

}  // namespace

void refuse_schema(std::string_view pointer, std::string_view reason) {
  constexpr std::size_t kMaxShown = 300;
  throw user_error("JSON schema, {}: {}", pointer.substr(0, kMaxShown), reason);
}

std::string child_pointer(std::string_view pointer, std::string_view name) {
  std::string result = std::string(pointer) + '/';
  for (const char c : name) result += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return result;
}

std::optional<std::int64_t> count_keyword(const Json& schema, const char* keyword,
                                          std::string_view pointer) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  constexpr double kMost = 1e9;
  const bool is_count = found->is_number() && found->get<double>() >= 0 &&
                        found->get<double>() == std::floor(found->get<double>());
  if (!is_count) refuse_schema(child_pointer(pointer, keyword), "not a whole number from 0 on");
  return static_cast<std::int64_t>(std::min(found->get<double>(), kMost));
}

bool is_annotation(std::string_view keyword) {
  constexpr std::string_view kAnnotations[] = {
      "title",      "description", "default", "examples",    "$comment", "$schema",
      "$id",        "id",          "$defs",   "definitions", "readOnly", "writeOnly",
      "deprecated", "$anchor",     "example", "$vocabulary"};
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
         std::end(kAnnotations);
}

Node SchemaCompiler::node_of(const Json& schema, const std::string& pointer, int depth) {
  if (depth > kMaxDepth) refuse_schema(pointer, "schemas nest too deep, or refer in a circle");
  if (schema.is_boolean()) return schema.get<bool>() ? values_.value() : builder_.nothing();
  if (!schema.is_object()) refuse_schema(pointer, "a schema is an object, true or false");
  if (schema.contains("$ref") && !has_neighbours(schema)) {
    return reference_node(schema, pointer, depth);
  }
  return flat_node(document_.flattened(schema, pointer), pointer, depth);
}

Node SchemaCompiler::reference_node(const Json& schema, const std::string& pointer, int depth) {
  const Json& reference = schema["$ref"];
  const Json& target = document_.target(reference, child_pointer(pointer, "$ref"));
  const auto name = reference.get<std::string>();
  const auto [found, is_new] = references_.emplace(name, 0);
  if (!is_new) return found->second;
  const Node rule = builder_.declare(name);
  found->second = rule;
  builder_.define(rule, node_of(target, name, depth + 1));
  return rule;
}

Node SchemaCompiler::flat_node(const Json& schema, const std::string& pointer, int depth) {
  if (schema.is_boolean()) return schema.get<bool>() ? values_.value() : builder_.nothing();
  refuse_unsupported(schema, pointer);
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return combined_node(schema, keyword, pointer, depth);
  }
  if (schema.contains("enum") || schema.contains("const")) return enum_node(schema, pointer);
  std::vector<Node> nodes;
  for (const std::string& type : types_of(schema, pointer)) {
    nodes.push_back(type_node(type, schema, pointer, depth));
  }
  return builder_.choice(std::move(nodes));
}

// Each alternative together with what stands beside the keyword.
Node SchemaCompiler::combined_node(const Json& schema, const char* keyword,
                                   const std::string& pointer, int depth) {
  const std::string here = child_pointer(pointer, keyword);
  const Json& list = schema[keyword];
  if (!list.is_array() || list.empty()) refuse_schema(here, "not a list of schemas");
  if (std::string_view(keyword) == "oneOf") {
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (document_.are_disjoint(list[i], list[j], here)) continue;
        refuse_schema(here, fmt::format("alternatives {} and {} may both be valid, which oneOf "
                                        "forbids; write anyOf, or give them a const that differs",
                                        j, i));
      }
    }
  }
  Json beside = schema;
  beside.erase(keyword);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string there = child_pointer(here, std::to_string(i));
    nodes.push_back(has_neighbours(beside)
                        ? flat_node(document_.merged(beside, list[i], there), there, depth + 1)
                        : node_of(list[i], there, depth + 1));
  }
  return builder_.choice(std::move(nodes));
}

Node SchemaCompiler::type_node(const std::string& type, const Json& schema,
                               const std::string& pointer, int depth) {
  if (type == "object") return object_node(schema, pointer, depth);
  if (type == "array") return array_node(schema, pointer, depth);
  if (type == "string") return string_node(schema, pointer);
  if (type == "boolean") return values_.boolean();
  if (type == "null") return values_.null();
  return number_node(schema, pointer, type == "integer", builder_, values_);
}

Node SchemaCompiler::enum_node(const Json& schema, const std::string& pointer) {
  for (const auto& [keyword, value] : schema.items()) {
    if (is_annotation(keyword) || keyword == "enum" || keyword == "const" || keyword == "type") {
      continue;
    }
    if (restricts(keyword)) {
      refuse_schema(child_pointer(pointer, keyword), "not supported beside enum or const");
    }
  }
  Json list = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
  if (!list.is_array() || list.empty()) {
    refuse_schema(child_pointer(pointer, "enum"), "not a list of values");
  }
  std::vector<std::string> scalars;
  std::vector<Node> nodes;
  const std::vector<std::string> types =
      schema.contains("type") ? types_of(schema, pointer) : std::vector<std::string>();
  for (const Json& value : list) {
    if (schema.contains("const") && value != schema["const"]) continue;
    if (schema.contains("type") && !has_type(value, types)) continue;
    if (value.is_structured()) {
      nodes.push_back(constant_node(value));
    } else {
      scalars.push_back(value.is_string() ? '"' + json_escaped(value.get<std::string>()) + '"'
                                          : value.dump());
    }
  }
  if (!scalars.empty()) nodes.push_back(builder_.one_of(std::move(scalars)));
  return builder_.choice(std::move(nodes));
}

Node SchemaCompiler::constant_node(const Json& value) {
  if (value.is_string()) return values_.exact_string(value.get<std::string>());
  if (!value.is_structured()) return builder_.literal(value.dump());
  std::vector<Node> parts = {builder_.literal(value.is_object() ? "{" : "[")};
  for (const auto& [name, inner] : value.items()) {
    if (parts.size() > 1) parts.push_back(values_.comma());
    if (value.is_object()) {
      parts.push_back(values_.exact_string(name));
      parts.push_back(values_.colon());
    }
    parts.push_back(constant_node(inner));
  }
  parts.push_back(builder_.literal(value.is_object() ? "}" : "]"));
  return builder_.sequence(std::move(parts));
}

Grammar schema_grammar(std::string_view schema) {
  constexpr int kMaxTextDepth = 128;
  GrammarBuilder builder("JSON schema");
  SchemaCompiler compiler(builder, SchemaDocument(parse_ordered_json(
                                       schema, "JSON schema",
                                       {.max_depth = kMaxTextDepth, .refusal = ErrorKind::kUser})));
  return build_grammar(builder, compiler.compile());
}

}  // namespace atl::serve::grammar
