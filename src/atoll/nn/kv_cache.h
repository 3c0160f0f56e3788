#pragma once

#include <cstdint>
#include <vector>

#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// The keys and values of the tokens generated so far, one pair of tensors a layer. Views; the
/// memory belongs to who generates.
struct KvCache {
  std::vector<Tensor> keys;    ///< per attention layer: (B, P, kv_width)
  std::vector<Tensor> values;  ///< per attention layer: (B, P, kv_width)
  /// Positions filled: where a forward pass puts its keys. Its caller advances it.
  std::int64_t length = 0;
};

}  // namespace atl::nn
