#pragma once

// Memory that a model takes, in words that say which model it is.

#include <filesystem>
#include <string>

#include "atoll/base/processes/memory_error.h"
#include "atoll/device/device.h"
#include "atoll/model_dir/model_path.h"
#include "atoll/nn/model.h"

namespace atl::model_dir {

/// "; the model is that of m/config.json: vocab_size is 256, hidden_size 64, ...": for the end of a
/// refusal of memory. `directory` is a model directory, or that of an adapter.
std::string whose_memory(const ModelPath& directory, const nn::ModelConfig& config);

/// Throws MemoryError where the weights alone, each of `bytes_per_weight`, do not fit what `device`
/// has, before the model is built: models of absurd sizes take seconds to build. `num_ranks` share
/// them.
void check_weights(const ModelPath& directory, const nn::ModelConfig& config, const Device& device,
                   double bytes_per_weight, int num_ranks);

/// Calls `take`; where it finds too little memory, the error says whose memory it is.
template <typename Take>
void take_memory(const ModelPath& directory, const nn::ModelConfig& config, Take&& take) {
  try {
    take();
  } catch (const MemoryError& error) {
    throw MemoryError(error.what() + whose_memory(directory, config));
  }
}

}  // namespace atl::model_dir
