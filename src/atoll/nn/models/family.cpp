#include "atoll/nn/models/family.h"

#include <array>

#include "atoll/nn/models/config_reader.h"

namespace atl::nn {

std::span<const Family> families() {
  static const std::array all = {llama_family(), mistral_family(), qwen2_family(), qwen3_family(),
                                 gpt2_family()};
  return all;
}

const Family& find_family(std::string_view model_type, std::string_view origin) {
  std::string known;
  for (const Family& family : families()) {
    if (model_type == family.model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  throw user_error("{}: \"model_type\" is \"{}\", a family that atoll does not build; it builds {}",
                   origin, model_type, known);
}

ModelConfig parse_config(std::string_view json, const std::string& origin) {
  const std::string model_type = ConfigReader(json, origin).text("model_type");
  ModelConfig config = find_family(model_type, origin).parse(json, origin);
  config.source_json = json;
  return config;
}

std::string config_json(const ModelConfig& config) {
  if (!config.source_json.empty()) return config.source_json;
  return find_family(config.family, "a new model").to_json(config);
}

std::unique_ptr<Model> build_model(const ModelConfig& config, const BuildOptions& options) {
  return find_family(config.family, "a model").build(config, options);
}

}  // namespace atl::nn
