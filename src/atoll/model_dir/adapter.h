#pragma once

// LoRA adapters as the PEFT library keeps them: adapter_config.json and
// adapter_model.safetensors beside, not inside, the base model.

#include <filesystem>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/model_dir/adapter_config.h"
#include "atoll/model_dir/adapter_merge.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::model_dir {

/// True when `directory` holds an adapter.
bool holds_adapter(const std::filesystem::path& directory);

/// Changes the weights of an adapter's base model, all of which `model`, of adapted_config, holds
/// in f32 or bf16. Throws as AdapterMerge.
void merge_adapter(const std::filesystem::path& directory, nn::Model& model);

/// Reads the trained parameters of a model that add_lora was called on, or this rank's part of
/// them.
void load_adapter(const std::filesystem::path& directory, parallel::ParamStore& store,
                  ThreadPool& threads);

}  // namespace atl::model_dir
