#pragma once

// What all kernels of attention are told: how heads lie, and which keys a query sees.

#include <limits>

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

/// What a product of a query and a key becomes, and by how much it grows with the scaled product.
struct AttentionScore {
  float value;
  float slope;

  template <typename Setup>
  ATOLL_DEVICE static AttentionScore of(const Setup& setup, float product) {
    const float scaled = setup.scale * product;
    if (setup.softcap == 0.0F) return {scaled, 1.0F};
    const float t = tanh_f32(scaled / setup.softcap);
    return {setup.softcap * t, fmaf(-t, t, 1.0F)};
  }
};

/// See ops/attention/attention.h.
struct AttentionSetup {
  static constexpr int kMaxHeadDim = 256;
  static constexpr bool kIsBlock = false;
  Global<const std::int32_t> positions;  // (B, T), or empty
  int length;                            // T, of queries
  int past;                              // keys before the first query's own
  int window;                            // 0: no limit
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  float softcap;  // 0: none

  ATOLL_DEVICE int group() const { return heads / kv_heads; }
  ATOLL_DEVICE int num_keys() const { return length; }  // of a gradient
  /// Of query t in lse, and in memory of the same shape.
  ATOLL_DEVICE std::int64_t lse_at(std::int64_t b, int head, int t) const {
    return (b * heads + head) * length + t;
  }
  ATOLL_DEVICE std::int64_t delta_at(std::int64_t b, int head, int t) const {
    return lse_at(b, head, t);
  }
  /// The first query that may see key s, of a gradient.
  ATOLL_DEVICE int first_query(int s) const { return s; }
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

/// A stretch of queries and one of keys: see ops/attention_block/attention_block.h. Queries and
/// keys are counted from the first of their stretches; results join those of other keys, and
/// gradients are added.
struct AttentionBlockSetup {
  static constexpr bool kIsBlock = true;
  Global<const std::int32_t> positions;  // (B, rows), or empty
  int length;                            // queries
  int keys;
  int rows;       // of a sequence's queries in their tensors
  int first_row;  // of query 0 among them
  int past;       // the token of query 0 less that of key 0
  int window;     // 0: no limit
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  float softcap;  // 0: none
  bool merges;    // out and lse have the results of other keys

  ATOLL_DEVICE int group() const { return heads / kv_heads; }
  ATOLL_DEVICE int num_keys() const { return keys; }
  ATOLL_DEVICE std::int64_t lse_at(std::int64_t b, int head, int t) const {
    return (b * heads + head) * rows + first_row + t;
  }
  ATOLL_DEVICE std::int64_t delta_at(std::int64_t b, int head, int t) const {
    return (b * heads + head) * length + t;
  }
  ATOLL_DEVICE int first_query(int s) const { return s > past ? s - past : 0; }
  /// The last key that query t sees.
  ATOLL_DEVICE int own_key(int t) const { return past + t < keys ? past + t : keys - 1; }
  /// The first, which is behind the last where it sees none. It never falls from a query to the
  /// next.
  ATOLL_DEVICE int first_key(std::int64_t b, int t) const {
    const int own = past + t;
    const int first = window > 0 && own >= window ? own - window + 1 : 0;
    if (positions.size == 0) return first;
    const int begin = own - positions.load(b * rows + first_row + t);
    return begin > first ? begin : first;
  }
};

/// What results have: of blocks, which are added to, f32.
template <typename T, typename Setup>
using AttentionResult = std::conditional_t<Setup::kIsBlock, float, T>;

/// How what a query has made of a block's keys joins what it had: out' = before out + now o.
struct AttentionMerge {
  float lse;     // of all keys
  float before;  // 0 where there was nothing, or it is not to be read
  float now;

  /// `total`: the sum of exponentials over e^max, 0 where the query sees no key of the block.
  ATOLL_DEVICE static AttentionMerge of(bool merges, float old_lse, float max, float total) {
    const float none = -std::numeric_limits<float>::infinity();
    const float old = merges ? old_lse : none;
    // Nothing is added; a NaN stays one.
    if (!(total > 0)) return {old + total, merges ? 1.0F : 0.0F, total};
    const float block = max + log_f32(total);
    if (old == none) return {block, 0.0F, 1.0F / total};
    const float top = old > block ? old : block;
    const float of_old = exp_f32(old - top), of_block = exp_f32(block - top);
    const float sum = of_old + of_block;
    return {top + log_f32(sum), of_old / sum, of_block / sum / total};
  }
};

}  // namespace atl::ops::cuda
