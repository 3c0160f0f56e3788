#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/adapters/served_adapters.h"

namespace atl::serve {

/// A low-rank adapter that requests may ask for by name, beside others that do not. Nobody changes
/// one that is served: another of the same name takes its place.
struct StepAdapter {
  std::string name;
  std::string version;  ///< "step-00000060": told with each answer; empty: it has none
  /// Of each Linear, as nn::linears_of() has them.
  std::vector<nn::ServedFactors> linears;
  /// What owns the factors' memory. Shared with whoever made the adapter.
  std::shared_ptr<const void> memory;
  /// Tells adapters of one generator apart, also those of one name; from 1 on. AdapterTable gives
  /// it.
  std::uint64_t number = 0;

  /// The greatest rank of a Linear.
  std::int64_t rank() const;
};

}  // namespace atl::serve
