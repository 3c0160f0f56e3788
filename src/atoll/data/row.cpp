#include "atoll/data/row.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/tensor/batch.h"

namespace atl::data {

const char* packing_name(Packing packing) {
  switch (packing) {
    case Packing::kStream:
      return "stream";
    case Packing::kMasked:
      return "masked";
    case Packing::kDocuments:
      return "documents";
    case Packing::kPairs:
      return "pairs";
  }
  return "?";
}

Packing parse_packing(std::string_view name, std::string_view key) {
  for (const Packing packing : {Packing::kStream, Packing::kMasked, Packing::kDocuments}) {
    if (name == packing_name(packing)) return packing;
  }
  throw user_error("{} is \"{}\"; it must be \"stream\", \"masked\" or \"documents\"", key, name);
}

void cut_window(const TokenSource& source, std::int64_t first, std::int64_t size, Packing packing,
                RowScratch& scratch) {
  scratch.segments.clear();
  scratch.starts.clear();
  const std::int64_t end = first + size;
  if (packing != Packing::kStream) {
    // One behind the window too: it takes the target of the last input.
    source.append_document_starts(first + 1, end + 1, scratch.starts);
  }
  std::int64_t begin = first;
  for (const std::int64_t start : scratch.starts) {
    scratch.segments.push_back({begin, start - begin, false});
    begin = start;
  }
  if (begin < end) scratch.segments.push_back({begin, end - begin, end < source.num_tokens()});
}

namespace {

// The targets of a segment are the `count` tokens behind its first.
std::size_t num_successors(const Segment& segment) {
  return static_cast<std::size_t>(segment.size - (segment.continues ? 0 : 1));
}

// The loss mask of a segment's targets, valid until the next call.
std::span<const std::uint8_t> target_mask(const TokenSource& source, const Segment& segment,
                                          RowScratch& scratch) {
  const std::size_t count = num_successors(segment);
  if (scratch.mask.size() < count) scratch.mask.resize(count);
  const std::span mask = std::span(scratch.mask).first(count);
  source.copy_mask(segment.first + 1, mask);
  return mask;
}

}  // namespace

void fill_row(const TokenSource& source, const RowView& row, RowScratch& scratch) {
  std::size_t at = 0;
  for (const Segment& segment : scratch.segments) {
    const auto size = static_cast<std::size_t>(segment.size);
    const std::size_t targets = num_successors(segment);
    ATOLL_CHECK(size >= 1 && size <= row.tokens.size() - at, "{} tokens at {} of {}", size, at,
                row.tokens.size());
    const std::size_t reads = std::max(size, targets + 1);
    if (scratch.tokens.size() < reads) scratch.tokens.resize(reads);
    source.copy(segment.first, std::span(scratch.tokens).first(reads));
    std::copy_n(scratch.tokens.begin(), size, row.tokens.begin() + static_cast<std::ptrdiff_t>(at));
    const std::span out = row.targets.subspan(at, size);
    std::copy_n(scratch.tokens.begin() + 1, targets, out.begin());
    if (targets < size) out.back() = kIgnoreTarget;
    if (source.has_mask()) {
      const std::span mask = target_mask(source, segment, scratch);
      for (std::size_t i = 0; i < targets; ++i) {
        if (mask[i] == 0) out[i] = kIgnoreTarget;
      }
    }
    if (!row.positions.empty()) {
      const std::span positions = row.positions.subspan(at, size);
      std::iota(positions.begin(), positions.end(), 0);
    }
    at += size;
  }
  const auto pad = [at](std::span<std::int32_t> part, std::int32_t value) {
    if (!part.empty()) std::fill(part.begin() + static_cast<std::ptrdiff_t>(at), part.end(), value);
  };
  pad(row.tokens, 0);
  pad(row.targets, kIgnoreTarget);
  if (!row.positions.empty()) {
    const std::span padding = row.positions.subspan(at);
    std::iota(padding.begin(), padding.end(), 0);
  }
}

std::int64_t count_targets(const TokenSource& source, RowScratch& scratch) {
  std::int64_t count = 0;
  for (const Segment& segment : scratch.segments) {
    if (!source.has_mask()) {
      count += static_cast<std::int64_t>(num_successors(segment));
      continue;
    }
    for (const std::uint8_t trained : target_mask(source, segment, scratch)) count += trained;
  }
  return count;
}

}  // namespace atl::data
