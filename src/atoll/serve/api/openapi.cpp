#include "atoll/serve/api/openapi.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace atl::serve::api {

namespace {

const char* name_of(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "boolean";
    case FieldType::kInteger:
      return "integer";
    case FieldType::kNumber:
      return "number";
    case FieldType::kString:
      return "string";
    case FieldType::kObject:
      return "object";
    case FieldType::kArray:
      return "array";
    default:
      return nullptr;
  }
}

// A bound as it is written: 128, not 128.0.
Json bound_of(double bound) {
  const auto whole = static_cast<std::int64_t>(bound);
  return static_cast<double>(whole) == bound ? Json(whole) : Json(bound);
}

Json schema_of(const FieldRule& rule) {
  Json schema = Json::object();
  const Json inner = *rule.schema != '\0' ? Json::parse(rule.schema) : Json();
  if (rule.type == FieldType::kOther) schema = inner;
  if (const char* type = name_of(rule.type)) schema["type"] = type;
  if (rule.type == FieldType::kArray && !inner.is_null()) schema["items"] = inner;
  if (rule.type == FieldType::kObject && !inner.is_null()) schema["additionalProperties"] = inner;
  const bool has_bounds = rule.type == FieldType::kInteger || rule.type == FieldType::kNumber;
  if (has_bounds && !std::isinf(rule.least)) {
    schema[rule.is_above_least ? "exclusiveMinimum" : "minimum"] = bound_of(rule.least);
  }
  if (has_bounds && !std::isinf(rule.most)) schema["maximum"] = bound_of(rule.most);
  schema["description"] = rule.help;
  if (!rule.is_required) schema = {{"anyOf", Json::array({schema, {{"type", "null"}}})}};
  return schema;
}

Json body_schema(const std::vector<FieldRule>& rules) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const FieldRule& rule : rules) {
    if (rule.type == FieldType::kRefused) continue;
    properties[rule.name] = schema_of(rule);
    if (rule.is_required) required.push_back(rule.name);
  }
  Json schema = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

Json error_schema() {
  const Json text_or_null = {{"type", Json::array({"string", "null"})}};
  const Json members = {{"message", {{"type", "string"}}},
                        {"type", {{"type", "string"}}},
                        {"param", text_or_null},
                        {"code", text_or_null}};
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties", {{"error", {{"type", "object"}, {"properties", members}}}}}};
}

Json parameters_of(std::string_view path) {
  const std::size_t open = path.find('{');
  if (open == path.npos) return Json::array();
  const std::string name(path.substr(open + 1, path.find('}') - open - 1));
  return Json::array(
      {{{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
}

Json operation_of(const RouteInfo& route) {
  Json operation = {{"summary", route.summary}, {"parameters", parameters_of(route.path)}};
  if (!route.rules.empty()) {
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", body_schema(route.rules)}}}}}};
  }
  const Json error = {
      {"description", "Why the request is not served."},
      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  Json answer = {{"description", "The answer."},
                 {"content", {{route.answer_type, Json::object()}}}};
  const bool streams = std::ranges::any_of(
      route.rules, [](const FieldRule& rule) { return std::string_view(rule.name) == "stream"; });
  if (streams) answer["content"]["text/event-stream"] = Json::object();
  operation["responses"] = {{"200", answer}, {"default", error}};
  if (!route.needs_key) operation["security"] = Json::array();
  return operation;
}

}  // namespace

std::string openapi_json(const std::vector<RouteInfo>& routes) {
  Json paths = Json::object();
  for (const RouteInfo& route : routes) paths[route.path][route.method] = operation_of(route);
  const Json document = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "atoll serve"}, {"version", "1"}}},
      {"security", Json::array({{{"key", Json::array()}}})},
      {"paths", paths},
      {"components",
       {{"schemas", {{"Error", error_schema()}}},
        {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return to_text(document);
}

}  // namespace atl::serve::api
