#pragma once

// The sizes of a model, which say how much memory it takes before it is built.

#include <string>

#include "atoll/nn/model.h"

namespace atl::nn {

/// "vocab_size is 256, hidden_size 64, ...", as the family's config.json calls them.
std::string size_list(const ModelConfig& config);

/// How many parameters the model has in its large matrices: a lower bound of all. A double, which
/// no product of sizes overflows.
double least_parameters(const ModelConfig& config);

}  // namespace atl::nn
