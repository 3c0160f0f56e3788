#pragma once

// A row of a batch: how pieces of a corpus become inputs, targets and positions.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/token_source.h"

namespace atl::data {

/// How sequences are cut out of a corpus. docs/data-order.md states each exactly.
enum class Packing {
  kStream,     ///< Windows over all tokens; a document attends to the one before it.
  kMasked,     ///< The same windows; attention and positions stay within a document.
  kDocuments,  ///< Whole documents, several to a row, the rest of it padded; kept apart as well.
  kPairs,      ///< One document a row, and two rows a pair (PairSamples); no setting names it.
};

/// "stream", "masked", "documents" or "pairs".
const char* packing_name(Packing packing);

/// The Packing of that name. Throws Error(kUser), beginning with `key` (the setting), for another.
Packing parse_packing(std::string_view name, std::string_view key);

/// Consecutive tokens in a row that may attend to each other.
struct Segment {
  std::int64_t first = 0;  ///< token of the source
  std::int64_t size = 0;
  bool continues = false;  ///< the token behind it is the target of its last one
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Where a row goes: T elements each.
struct RowView {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;
  std::span<std::int32_t> positions;  ///< within documents; may be empty: not asked for
};

/// Memory that row after row uses again.
struct RowScratch {
  std::vector<Segment> segments;
  std::vector<std::int64_t> starts;
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> mask;
};

/// Cuts the window of `size` inputs from token `first` into segments: one, or one a document.
void cut_window(const TokenSource& source, std::int64_t first, std::int64_t size, Packing packing,
                RowScratch& scratch);

/// Fills a row from scratch.segments, end to end from position 0. What is left gets token 0, no
/// target, and stands alone.
void fill_row(const TokenSource& source, const RowView& row, RowScratch& scratch);

/// Positions with a target in the row that fill_row would make, from mask and documents alone.
std::int64_t count_targets(const TokenSource& source, RowScratch& scratch);

}  // namespace atl::data
