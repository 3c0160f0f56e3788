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
  /// The norm and the activation of its blocks, by the names of their ops: the planner measures
  /// these ("rms_norm", "layer_norm"; "swiglu", "gelu"), and refuses a family with others.
  std::string_view norm = "rms_norm";
  std::string_view activation = "swiglu";
  /// Whether an MLP has two matrices of inputs, one of which is a gate.
  bool has_gate = true;
  /// Whether its files have the weight of a linear layer as (in, out), as GPT-2's do.
  bool transposed_linears = false;
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

/// While it lives, there is another family: of an extension, or of a test. It is used wherever the
/// program's own are. Of several, the last that was made ends first. Not while runs go on.
class AddedFamily {
 public:
  explicit AddedFamily(const Family& family);
  ~AddedFamily();
  AddedFamily(const AddedFamily&) = delete;
  AddedFamily& operator=(const AddedFamily&) = delete;
};

/// Reads a config.json of any known family; `origin` names the file in errors.
ModelConfig parse_config(std::string_view json, const std::string& origin);
/// The config.json to write for this model: the text it came from, or a new one.
std::string config_json(const ModelConfig& config);
/// Builds the layers. Parameters have no memory yet: a ParamStore gives it.
std::unique_ptr<Model> build_model(const ModelConfig& config, const BuildOptions& options);

}  // namespace atl::nn
