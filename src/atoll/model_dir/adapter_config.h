#pragma once

// adapter_config.json, as the PEFT library writes it.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/nn/lora.h"

namespace atl::model_dir {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// What an adapter_config.json says.
struct AdapterConfig {
  nn::LoraOptions lora;
  std::string base;         ///< base_model_name_or_path
  bool lora_bias = false;   ///< factors B have biases
  bool keeps_tied = false;  ///< ensure_weight_tying
};

/// The adapter_config.json that PEFT reads.
std::string adapter_config_json(const AdapterConfig& config, const nn::ModelConfig& model);

/// The text of an adapter_config.json with another base_model_name_or_path, all else as it is.
/// Throws Error(kDamaged) naming `origin` for what is no JSON object.
std::string with_base(std::string_view json, const std::string& origin, const std::string& base);

/// Reads one. Fields that change no number pass; unknown ones that are plain values and are not
/// named like a part of an adapter are named in one warning. Throws Error(kUser) naming `origin`
/// and the field for an adapter that is no LoRA, for a field of a wrong type, and for one that
/// changes what the adapter computes in a way that atoll does not compute.
AdapterConfig parse_adapter_config(std::string_view json, const std::string& origin);

}  // namespace atl::model_dir
