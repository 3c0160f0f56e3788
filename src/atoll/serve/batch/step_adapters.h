#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/adapters/served_adapters.h"

namespace atl::serve {

/// A low-rank adapter that requests may ask for by name, beside others that do not.
struct StepAdapter {
  std::string name;
  /// Of each Linear, as nn::linears_of() has them.
  std::vector<nn::ServedFactors> linears;
  /// What owns the factors' memory. Shared by the models that take each other's place.
  std::shared_ptr<const void> memory;
};

}  // namespace atl::serve
