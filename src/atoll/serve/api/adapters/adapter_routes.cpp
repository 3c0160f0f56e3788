#include "atoll/serve/api/adapters/adapter_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl::serve::api {

namespace {

using Type = FieldType;

struct AdapterRequest {
  std::string name;
  std::string path;
  bool is_in_place = false;
};

const Field<AdapterRequest>& name_field() {
  static const Field<AdapterRequest> field = {
      {.name = "lora_name",
       .type = Type::kString,
       .help = "What requests call the adapter in \"model\".",
       .is_required = true},
      [](const Json& value, AdapterRequest& into) { into.name = value.get<std::string>(); }};
  return field;
}

const std::vector<Field<AdapterRequest>>& load_fields() {
  static const std::vector<Field<AdapterRequest>> fields = {
      name_field(),
      {{.name = "lora_path",
        .type = Type::kString,
        .help = "Its directory or run, below the server's --adapter-dir.",
        .is_required = true},
       [](const Json& value, AdapterRequest& into) { into.path = value.get<std::string>(); }},
      {{"load_inplace", Type::kBoolean,
        "Whether it may take the place of an adapter that has the name (false)."},
       [](const Json& value, AdapterRequest& into) { into.is_in_place = value.get<bool>(); }},
  };
  return fields;
}

const std::vector<Field<AdapterRequest>>& unload_fields() {
  static const std::vector<Field<AdapterRequest>> fields = {name_field()};
  return fields;
}

AdapterRequest parse(const Json& body, const std::vector<Field<AdapterRequest>>& fields,
                     const ServedModel& model) {
  if (model.adapter_loader == nullptr) {
    throw ApiError(403, "this server loads and unloads no adapters; --adapter-dir has it do so", "",
                   "not_enabled");
  }
  refuse_unknown(body, rules_of(fields));
  AdapterRequest request;
  read_fields(body, fields, request);
  return request;
}

bool is_served(const ServedModel& model, const std::string& name) {
  const std::vector<std::string> names = model.generator->adapters();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A name is part of paths and of log lines.
void check_name(const AdapterRequest& request, const ServedModel& model) {
  constexpr std::size_t kMostBytes = 200;
  const auto is_fine = [](char c) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return is_word || c == '-' || c == '_' || c == '.' || c == ':' || c == '/';
  };
  const std::string& name = request.name;
  if (name.empty() || name.size() > kMostBytes || !std::all_of(name.begin(), name.end(), is_fine)) {
    throw field_error("lora_name",
                      fmt::format("lora_name must be 1 to {} letters, digits, '-', '_', '.', ':' "
                                  "and '/'",
                                  kMostBytes));
  }
  if (name == model.name) {
    throw field_error("lora_name",
                      fmt::format("{} is the model itself; give the adapter another name", name));
  }
  if (!request.is_in_place && is_served(model, name)) {
    throw field_error(
        "lora_name", fmt::format("{} is loaded already; unload it, or ask with load_inplace", name),
        "already_loaded");
  }
}

}  // namespace

std::vector<FieldRule> load_adapter_rules() {
  return rules_of(load_fields());
}

std::vector<FieldRule> unload_adapter_rules() {
  return rules_of(unload_fields());
}

std::string load_adapter(const Json& body, const ServedModel& model) {
  const AdapterRequest request = parse(body, load_fields(), model);
  check_name(request, model);
  try {
    model.adapter_loader->load(request.name, request.path);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kResource) throw ApiError(409, error.what(), "", "no_room");
    if (error.kind() == ErrorKind::kUser || error.kind() == ErrorKind::kDamaged) {
      throw field_error("lora_path", error.what());
    }
    throw;
  }
  return to_text(Json{{"id", request.name},
                      {"object", "model"},
                      {"version", model.generator->version(request.name)}});
}

std::string unload_adapter(const Json& body, const ServedModel& model) {
  const AdapterRequest request = parse(body, unload_fields(), model);
  if (!model.adapter_loader->unload(request.name)) {
    throw ApiError(404,
                   fmt::format("there is no adapter {}; GET /v1/models lists them",
                               request.name.substr(0, 200)),
                   "lora_name", "model_not_found");
  }
  return to_text(Json{{"id", request.name}, {"object", "model"}, {"deleted", true}});
}

}  // namespace atl::serve::api
