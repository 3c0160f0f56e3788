#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "atoll/nn/model.h"
#include "atoll/nn/models/gguf_form.h"

namespace atl::nn {

/// What a family's config.json calls its sizes.
struct SizeNames {
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* num_kv_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* intermediate_size = "intermediate_size";
  const char* max_positions = "max_position_embeddings";
};

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
  int block_norms = 2;  ///< of rows, in a block
  /// Whether its files have the weight of a linear layer as (in, out), as GPT-2's do.
  bool transposed_linears = false;
  /// Whether queries and keys rotate by position; if not, positions are learned.
  bool has_rope = true;
  /// Whether heads share hidden_size evenly, and there are as many key-value heads as heads.
  bool has_even_heads = false;
  /// Whether config.json may let a part of each head rotate.
  bool has_partial_rotation = false;
  /// Whether blocks have experts; and whether these have a width, and weights that may be divided
  /// by their sum, of their own in config.json.
  bool has_experts = false;
  bool has_expert_width = false;
  /// Whether a new model of this family may have model.sliding_window.
  bool has_window_setting = false;
  /// What else people call the family: words for model.family, in lower case with underscores.
  std::span<const char* const> aliases = {};
  SizeNames sizes = {};
  GgufForm gguf = {};
};

/// The families themselves; each is defined in the file of its name.
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family mixtral_family();
Family qwen3_moe_family();
Family gpt2_family();
Family smollm3_family();
Family phi3_family();
Family granite_family();
Family glm4_family();
Family gemma3_family();
Family gemma2_family();
Family olmo2_family();
Family olmo3_family();
Family starcoder2_family();
Family gpt_neox_family();
Family gpt_oss_family();
Family deepseek_v2_family();
Family deepseek_v3_family();

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
/// The config.json to write for this model: the text it came from, without what it says of
/// quantised weights, or a new one.
std::string config_json(const ModelConfig& config);
/// Builds the layers. Parameters have no memory yet: a ParamStore gives it.
std::unique_ptr<Model> build_model(const ModelConfig& config, const BuildOptions& options);

}  // namespace atl::nn
