#pragma once

#include "atoll/nn/model.h"

namespace atl::nn {

/// Gives each parameter of `part`, of which ranks hold parts, the number that the parameter of its
/// name has in `whole`: the same initial values on any number of ranks.
void number_as_in(const Model& whole, Model& part);

}  // namespace atl::nn
