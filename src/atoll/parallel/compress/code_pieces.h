#pragma once

// Where the codes of a bucket's elements lie in the bytes that are sent of it.

#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// So many elements at most are encoded at once, from a place where no part of a rank ends within.
struct CodePiece {
  std::int64_t begin = 0;  ///< element of the flat vector
  std::int64_t count = 0;
  std::int64_t byte = 0;  ///< where its code begins in the bucket's
};

/// The codes of a bucket: pieces in the order of the flat vector.
struct BucketCodes {
  std::vector<CodePiece> pieces;
  std::vector<std::int64_t> byte_parts;     ///< of rank r: [byte_parts[r], byte_parts[r + 1])
  std::vector<std::size_t> first_of_parts;  ///< piece with which rank r's part begins

  std::int64_t bytes() const { return byte_parts.back(); }
  std::int64_t part_bytes(int r) const {
    const auto at = static_cast<std::size_t>(r);
    return byte_parts[at + 1] - byte_parts[at];
  }
};

/// Pieces are counted from the beginning of each ParamRange, as blocks of gradient norms are, so
/// that they are the same whatever ranks and buckets there are. `bytes_of(n)`: of n elements.
std::vector<BucketCodes> code_pieces(const FlatLayout& layout,
                                     const std::function<std::size_t(std::int64_t)>& bytes_of);

}  // namespace atl::parallel
