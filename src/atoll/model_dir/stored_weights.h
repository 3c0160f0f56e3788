#pragma once

#include <functional>
#include <string>

#include "atoll/model_dir/model_path.h"
#include "atoll/nn/model.h"

namespace atl::model_dir {

/// What of a model directory stays in memory in the bits of its file.
enum class StoredWeights {
  kQuantised,  ///< quantised weights
  kAll,        ///< every matrix of a linear layer: also bf16 and f16
};

/// How the weights of a directory are quantised, for people ("bitsandbytes nf4"); empty where they
/// are not. Throws as ckpt::QuantisedWeights.
std::string quantisation_of(const ModelPath& directory);

/// nn::pack_weights with the formats of a directory's tensors; `freezes` as there.
/// Parameters that stay so are read by load_parameters. Throws as pack_weights, and Error(kUser)
/// where the directory is an adapter, which would have to be merged into them.
void keep_stored(const ModelPath& directory, StoredWeights which, bool freezes, nn::Model& model);

}  // namespace atl::model_dir
