#pragma once

#include <cstdint>
#include <vector>

namespace atl::optim {

/// A matrix of which each of several ranks has some rows or columns.
struct MatrixParts {
  /// Rows that lie together in the whole matrix.
  struct Rows {
    std::int64_t begin = 0;
    std::int64_t count = 0;

    bool operator==(const Rows&) const = default;
  };
  struct Part {
    std::vector<Rows> rows;  ///< one below the other in the part
    std::int64_t column_begin = 0;
    std::int64_t columns = 0;

    std::int64_t num_rows() const {
      std::int64_t sum = 0;
      for (const Rows& stretch : rows) sum += stretch.count;
      return sum;
    }
    std::int64_t num_elements() const { return num_rows() * columns; }
    bool operator==(const Part&) const = default;
  };

  std::int64_t rows = 0, cols = 0;  ///< of the whole
  std::vector<Part> of_ranks;       ///< of StepArgs::parts; some may have the same

  /// The first rank that has what `rank` has.
  std::size_t first_with_part_of(std::size_t rank) const {
    std::size_t first = 0;
    while (of_ranks[first] != of_ranks[rank]) ++first;
    return first;
  }
};

}  // namespace atl::optim
