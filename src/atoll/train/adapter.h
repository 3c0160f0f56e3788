#pragma once

// LoRA adapters as the PEFT library keeps them: adapter_config.json and
// adapter_model.safetensors beside, not inside, the base model.

#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/nn/lora.h"
#include "atoll/parallel/param_store.h"

namespace atl::train {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

/// What an adapter_config.json says.
struct AdapterConfig {
  nn::LoraOptions lora;
  std::string base;  ///< base_model_name_or_path
};

/// The adapter_config.json that PEFT reads.
std::string adapter_config_json(const AdapterConfig& config, const nn::ModelConfig& model);

/// Reads one. Throws Error(kUser) naming `origin` and the field for an adapter that is no LoRA or
/// has a field that changes what it computes and that atoll does not compute.
AdapterConfig parse_adapter_config(std::string_view json, const std::string& origin);

/// True when `directory` holds an adapter.
bool holds_adapter(const std::filesystem::path& directory);

/// Adds an adapter to the weights of its base model, which `model` holds in f32 or bf16:
/// W += s B A. Throws Error(kUser) or Error(kDamaged) naming file and tensor.
void merge_adapter(const std::filesystem::path& directory, nn::Model& model);

/// Reads the trained parameters of a model that add_lora was called on.
void load_adapter(const std::filesystem::path& directory, const parallel::ParamStore& store);

}  // namespace atl::train
