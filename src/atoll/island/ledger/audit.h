#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// What a log proves, and where it does not.
struct AuditReport {
  /// One line each, in the log's order; none: all below holds.
  std::vector<std::string> findings;
  std::size_t num_unsaid = 0;  ///< findings beyond the first hundred

  std::int64_t num_committed = 0;  ///< outer steps that stand
  std::int64_t num_void = 0;       ///< commits that do not
  std::int64_t consumed = 0;       ///< batches, in commits that stand
  std::int64_t leased = 0;         ///< batches
  std::int64_t returned = 0;       ///< batches below the high-water mark that are free again
  std::int64_t high_water = 0;     ///< no batch from this one on was ever leased

  bool is_proved() const { return findings.empty(); }
};

/// Replays a log and holds it against the rules of a run: fences grow; an island's number is its
/// name's alone; only free batches are leased, and only leased ones trained on or returned by who
/// holds them; each outer step is committed once, in order, from its newest attempt, with a hash;
/// weights add up to 1; each batch below the high-water mark is once in the commits that stand, or
/// leased, or free. The order of batches counts through the epochs (docs/data-order.md), so that a
/// batch once in it is every sample once an epoch.
AuditReport audit(std::span<const LogRecord> records);

/// Batches as people read them: "0-9, 20, 30-39"; beyond `max_ranges` of them "and 4 more".
std::string to_text(std::span<const BatchRange> ranges, std::size_t max_ranges);

}  // namespace atl::island
