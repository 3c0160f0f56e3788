#pragma once

// Where the codes of a bucket's elements lie among the bytes that are sent for the bucket.

#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// At most kBlockElements elements, which are encoded together. A rank's part never ends within a
/// piece.
struct CodePiece {
  std::int64_t begin = 0;  ///< element of the flat vector
  std::int64_t count = 0;  ///< elements
  std::int64_t byte = 0;   ///< where the code begins among the bytes of the bucket
};

/// The pieces of a bucket, in the order of the flat vector, and where the ranks' parts begin.
struct BucketCodes {
  std::vector<CodePiece> pieces;
  std::vector<std::int64_t> byte_parts;     ///< bytes of rank r: [byte_parts[r], byte_parts[r + 1])
  std::vector<std::size_t> first_of_parts;  ///< by rank: the first piece of its part; then the end

  std::int64_t bytes() const { return byte_parts.back(); }
  std::int64_t part_bytes(int r) const {
    const auto at = static_cast<std::size_t>(r);
    return byte_parts[at + 1] - byte_parts[at];
  }
};

/// The pieces of each bucket. As with NormBlock, pieces are counted from the beginning of each
/// ParamRange, so that they are the same for all numbers of ranks and all sizes of buckets.
/// bytes_of(n): the bytes of the code of n elements.
std::vector<BucketCodes> code_pieces(const FlatLayout& layout,
                                     const std::function<std::size_t(std::int64_t)>& bytes_of);

}  // namespace atl::parallel
