#pragma once

// What all kernels of attention are told: how heads lie, and which keys a query sees.

#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Heads in rows of a tensor: element 0 of head h of row t of sequence b is at(b, t, h).
template <typename T>
struct HeadRows {
  Global<T> rows;
  std::int64_t batch;   // elements from a sequence to the next
  std::int64_t row;     // elements from a row to the next
  std::int64_t offset;  // of head 0 in a row
  int head_dim;

  ATOLL_DEVICE std::int64_t at(std::int64_t b, std::int64_t t, int head) const {
    return b * batch + t * row + offset + std::int64_t{head} * head_dim;
  }
};

/// See ops/attention.h.
struct AttentionSetup {
  static constexpr int kMaxHeadDim = 256;
  Global<const std::int32_t> positions;  // (B, T), or empty
  int length;                            // T, of queries
  int past;                              // keys before the first query's own
  int window;                            // 0: no limit
  int heads;
  int kv_heads;
  int head_dim;
  float scale;

  ATOLL_DEVICE int group() const { return heads / kv_heads; }
  /// Query t's own key, the last that it sees.
  ATOLL_DEVICE int own_key(int t) const { return past + t; }
  /// The first key that query t of sequence b sees. It never falls from a query to the next:
  /// documents follow one another and windows move on.
  ATOLL_DEVICE int first_key(std::int64_t b, int t) const {
    const int own = own_key(t);
    const int first = window > 0 && own >= window ? own - window + 1 : 0;
    if (positions.size == 0) return first;
    const int begin = own - positions.load(b * length + t);
    return begin > first ? begin : first;
  }
};

}  // namespace atl::ops::cuda
