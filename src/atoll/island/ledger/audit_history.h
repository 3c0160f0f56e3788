#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// One attempt at an outer step, as a log tells it.
struct OuterAttempt {
  /// How it ended.
  enum class Outcome { kUnderWay, kAbandoned, kCommitted, kVoid };
  double begun = 0;  ///< Unix seconds
  double ended = 0;  ///< of a commit; otherwise 0
  LogReduce reduce;
  Outcome outcome = Outcome::kUnderWay;
  StateHash hash;    ///< of a commit
  LogCommit commit;  ///< the rest of it

  std::int64_t tokens() const;  ///< of all contributions
  double loss() const;          ///< mean over those tokens; 0 without any
};

/// What one island did.
struct IslandHistory {
  std::string name;
  std::string address;
  double joined = 0;             ///< Unix seconds
  std::int64_t outer_steps = 0;  ///< committed ones that it contributed to and that stand
  std::int64_t tokens = 0;       ///< in those
};

/// A log, told by what it is about rather than by when it was written.
struct History {
  struct Start {
    std::uint64_t fence = 0;
    double unix_seconds = 0;
  };
  std::vector<Start> starts;
  std::map<IslandId, IslandHistory> islands;
  std::vector<OuterAttempt> attempts;  ///< as they were begun
  std::int64_t num_committed = 0;      ///< outer steps that stand
  std::int64_t num_abandoned = 0;
  std::int64_t num_void = 0;
  bool is_finished = false;
  PolicyPlan policy;  ///< "fixed" where the log says none
};

/// Tells a log; one that audit() finds fault with may give odd sums, never more.
History tell_history(std::span<const LogRecord> records);

}  // namespace atl::island
