#pragma once

#include <array>
#include <cstdint>

#include "atoll/base/check.h"

namespace atl {

/// How ranks share the tokens of each sequence (context parallel).
enum class SequenceOrder : std::uint8_t {
  kContiguous,  ///< rank r of P has part r of P equal ones
  /// Rank r has parts r and 2 P - 1 - r of 2 P equal ones: one of the first, whose tokens see few
  /// others, and one of the last, whose tokens see many. All ranks then have the same number of
  /// pairs of a token and one that it sees.
  kZigzag,
};

/// Neighbouring tokens of a sequence.
struct TokenStretch {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// The part of each sequence that one of several ranks has: its rows are those of its stretches,
/// one after the other.
struct SequencePart {
  SequenceOrder order = SequenceOrder::kContiguous;
  int num_ranks = 1;
  int rank = 0;

  int num_stretches() const { return order == SequenceOrder::kZigzag ? 2 : 1; }
  /// What the length of a sequence is a multiple of.
  std::int64_t divisor() const { return std::int64_t{num_stretches()} * num_ranks; }

  /// The stretches of a sequence of `length` tokens, in the order of the rows; the first
  /// num_stretches() are there.
  std::array<TokenStretch, 2> stretches(std::int64_t length) const {
    ATOLL_CHECK(length % divisor() == 0, "{} tokens in {} equal parts", length, divisor());
    const std::int64_t count = length / divisor();
    return {{{rank * count, count}, {(2 * num_ranks - 1 - rank) * count, count}}};
  }
  /// The token of a row, where this rank has `num_rows` of each sequence.
  std::int64_t token(std::int64_t row, std::int64_t num_rows) const {
    const std::int64_t count = num_rows / num_stretches();
    return stretches(num_rows * num_ranks)[static_cast<std::size_t>(row / count)].first +
           row % count;
  }
};

}  // namespace atl
