#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "atoll/nn/model.h"

namespace atl::nn {

/// A model family: how its config.json reads, and how its layers stand. One file each.
struct Family {
  const char* model_type;  ///< config.json's "model_type"
  /// Reads a config.json. Throws Error(kUser) naming `origin` and the field for a value that would
  /// change the mathematics and that this family's layers do not compute.
  ModelConfig (*parse)(std::string_view json, const std::string& origin);
  /// The config.json of a new model of this shape.
  std::string (*to_json)(const ModelConfig& config);
  std::unique_ptr<Model> (*build)(const ModelConfig& config, const BuildOptions& options);
};

/// The families themselves; each is defined in the file of its name.
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family mixtral_family();
Family qwen3_moe_family();
Family gpt2_family();

/// All families, in the order help texts list them.
std::span<const Family> families();
/// The family called `model_type`; throws Error(kUser) that begins with `origin`, the file that
/// says so, and lists the known ones.
const Family& find_family(std::string_view model_type, std::string_view origin);

/// Reads a config.json of any known family; `origin` names the file in errors.
ModelConfig parse_config(std::string_view json, const std::string& origin);
/// The config.json to write for this model: the text it came from, or a new one.
std::string config_json(const ModelConfig& config);
/// Builds the layers. Parameters have no memory yet: a ParamStore gives it.
std::unique_ptr<Model> build_model(const ModelConfig& config, const BuildOptions& options);

}  // namespace atl::nn
