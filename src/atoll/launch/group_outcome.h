#pragma once

// Why a group ended: of many ranks that fail one after the other, which one began it.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/launch/report.h"

namespace atl::launch {

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  std::string host;             ///< empty: this one
  int exit_code = 0;            ///< meaningless when a signal ended it
  int signal = 0;               ///< that ended it
  bool ended_by_us = false;     ///< with the others, after one had failed
  bool has_lost_agent = false;  ///< the agent that had started it is gone (ProcessEnd::is_lost)
  std::optional<RankReport> report;  ///< the error it told of
  std::string last_line;             ///< its last line on standard error
};

/// How all of them ended.
struct GroupEnd {
  std::vector<RankEnd> ranks;  ///< in the order in which they ended
  std::int64_t step = -1;      ///< the last step that any told of; -1: none
  std::int64_t begun_at = -1;  ///< the step that they went on from; -1: they have not begun
  int stop_signal = 0;         ///< the stop signal that was passed on to them
  bool was_wanted = false;     ///< it was GroupOptions::wants_to_stop that asked for it, no signal

  /// The step that is known to be taken, by these or by those before; -1: none.
  std::int64_t last_step() const { return step >= 0 ? step : begun_at; }
};

/// How a group of ranks ended, and what was the cause.
struct GroupOutcome {
  enum class Kind : std::uint8_t {
    kDone,     ///< all came to the end
    kStopped,  ///< a signal asked for it
    kMistake,  ///< the user's: starting again cannot help
    kFailed,
  };

  Kind kind = Kind::kDone;
  int exit_code = 0;
  std::string cause;              ///< of kMistake and kFailed: one sentence without full stop
  std::vector<int> lost;          ///< ranks that died, ascending: not those that ended with them
  std::vector<std::string> gone;  ///< hosts that ssh could not reach or has lost
};

/// Finds the rank that failed first. A signal or a lost host counts more than the reports of other
/// ranks; a rank's own error more than errors about peers; an earlier one more than a later one.
GroupOutcome outcome_of(const GroupEnd& end);

/// "signal 9 (Killed)".
std::string signal_text(int signal);

}  // namespace atl::launch
