#pragma once

#include <cstdint>

namespace atl::nn {

/// Attention whose keys and values are made of one short vector a token, and of one rotated key
/// that all heads share (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1).
struct LatentShape {
  std::int64_t kv_rank = 0;      ///< elements of that vector
  std::int64_t query_rank = 0;   ///< of the vector that queries are made of; 0: of x itself
  std::int64_t content_dim = 0;  ///< elements of a query or key that do not rotate
  std::int64_t rotary_dim = 0;   ///< those that do
  std::int64_t value_dim = 0;    ///< elements of a head's value
  bool rotates_neighbours =
      true;  ///< element 2 i turns with 2 i + 1, else i with i + rotary_dim / 2

  std::int64_t query_dim() const { return content_dim + rotary_dim; }
  /// Elements of a head in memory, where queries, keys and values are equally wide.
  std::int64_t head_dim() const { return query_dim() > value_dim ? query_dim() : value_dim; }
};

}  // namespace atl::nn
