#pragma once

// LoRA adapters as the PEFT library keeps them: adapter_config.json and
// adapter_model.safetensors beside, not inside, the base model.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/nn/lora.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::model_dir {

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

/// An adapter that is added to the weights of its base model: W += s B A.
class AdapterMerge {
 public:
  /// `model`: the base model, which must outlive this; no value of it is read. Throws Error(kUser)
  /// or Error(kDamaged) naming file and tensor.
  AdapterMerge(const std::filesystem::path& directory, nn::Model& model);

  /// Adds what the adapter has for `param` to a value of it, whole, in f32 or bf16.
  void add_to(const nn::Param& param, const Tensor& value) const;
  /// What it changes, by part of a weight.
  const std::vector<nn::LoraPart>& parts() const { return parts_; }

 private:
  nn::LoraOptions lora_;
  ckpt::SafetensorsFile file_;
  std::vector<nn::LoraPart> parts_;
};

/// Adds an adapter to the weights of its base model, all of which `model` holds in f32 or bf16.
/// Throws as AdapterMerge.
void merge_adapter(const std::filesystem::path& directory, nn::Model& model);

/// Reads the trained parameters of a model that add_lora was called on, or this rank's part of
/// them.
void load_adapter(const std::filesystem::path& directory, parallel::ParamStore& store,
                  ThreadPool& threads);

}  // namespace atl::model_dir
