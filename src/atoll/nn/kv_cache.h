#pragma once

#include <cstdint>
#include <vector>

#include "atoll/ops/attention/attention_paged.h"
#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// The keys and values of the tokens generated so far, one pair of tensors a layer. Views; the
/// memory belongs to who generates.
struct KvCache {
  std::vector<Tensor> keys;    ///< per attention layer: (B, P, kv_width)
  std::vector<Tensor> values;  ///< per attention layer: (B, P, kv_width)
  /// Positions filled: where a forward pass puts its keys. Its caller advances it.
  std::int64_t length = 0;
  /// Where one pass continues several sequences: which of its rows are whose. The P places of a
  /// cache, B being 1, are then blocks of block_size, and `length` means nothing.
  std::vector<ops::PagedRows> sequences;
  std::int64_t block_size = 0;  ///< 0: the cache has one sequence a row of the batch

  bool is_paged() const { return block_size > 0; }
};

}  // namespace atl::nn
