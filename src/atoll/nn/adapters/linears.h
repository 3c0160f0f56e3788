#pragma once

#include <vector>

#include "atoll/nn/linear.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// The Linears of a model in the order in which it shows them, each once. Models of one shape have
/// theirs in the same order.
std::vector<Linear*> linears_of(const Model& model);

}  // namespace atl::nn
