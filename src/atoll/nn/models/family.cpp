#include "atoll/nn/models/family.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/json.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/multimodal.h"
#include "atoll/nn/models/numbers.h"

namespace atl::nn {

namespace {

constexpr std::size_t kMostFamilies = 64;  // references to them stay valid when others are added

std::vector<Family>& all_families() {
  static std::vector<Family> families = [] {
    std::vector<Family> all;
    all.reserve(kMostFamilies);
    for (const auto& family :
         {llama_family,    mistral_family,   qwen2_family,       qwen3_family,
          mixtral_family,  qwen3_moe_family, gpt2_family,        smollm3_family,
          phi3_family,     granite_family,   glm4_family,        gemma3_family,
          gemma2_family,   olmo2_family,     olmo3_family,       starcoder2_family,
          gpt_neox_family, gpt_oss_family,   deepseek_v2_family, deepseek_v3_family}) {
      all.push_back(family());
    }
    return all;
  }();
  return families;
}

}  // namespace

std::span<const Family> families() {
  return all_families();
}

AddedFamily::AddedFamily(const Family& family) {
  std::vector<Family>& families = all_families();
  for (const Family& other : families) {
    ATOLL_CHECK(std::string_view(family.model_type) != other.model_type, "there is a family {}",
                family.model_type);
  }
  ATOLL_CHECK(families.size() < kMostFamilies, "{} families are the most", kMostFamilies);
  families.push_back(family);
}

AddedFamily::~AddedFamily() {
  all_families().pop_back();
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

namespace {

// Of files that are read as another family, as they are: their own code is that family's.
struct OtherName {
  const char* model_type;
  const char* family;
};
constexpr OtherName kOtherNames[] = {{"kimi_k2", "deepseek_v3"}};

std::string family_name(const std::string& model_type) {
  for (const OtherName& other : kOtherNames) {
    if (model_type == other.model_type) return other.family;
  }
  return model_type;
}

}  // namespace

ModelConfig parse_config(std::string_view json, const std::string& origin) {
  if (const auto part = language_part(json, origin)) return parse_config(part->config_json, origin);
  const std::string model_type = ConfigReader(json, origin).text("model_type");
  ModelConfig config = find_family(family_name(model_type), origin).parse(json, origin);
  config.source_json = json;
  return config;
}

namespace {

// Weights are written as floats, whatever they were read from.
std::string without_quantisation(const std::string& source_json) {
  constexpr const char* kField = "quantization_config";
  if (source_json.find(kField) == std::string::npos) return source_json;
  nlohmann::ordered_json json = parse_ordered_json(source_json, "config.json");
  json.erase(kField);
  return json.dump(2) + "\n";
}

}  // namespace

std::string config_json(const ModelConfig& config) {
  if (!config.source_json.empty()) return without_quantisation(config.source_json);
  return find_family(config.family, "a new model").to_json(config);
}

std::unique_ptr<Model> build_model(const ModelConfig& config, const BuildOptions& given) {
  const Family& family = find_family(config.family, "a model");
  const BuildOptions options = with_context_attention(config, given);
  std::unique_ptr<Model> model = family.build(config, options);
  if (options.tensor_size == 1 && options.expert_size == 1) return model;
  BuildOptions whole = options;
  whole.tensor_size = 1;
  whole.tensor_rank = 0;
  whole.expert_size = 1;
  whole.expert_rank = 0;
  number_as_in(*family.build(config, whole), *model);
  return model;
}

}  // namespace atl::nn
