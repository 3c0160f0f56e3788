#pragma once

// What a rank tells the process that started it. One line each, marked so that it can travel
// through the standard error that ssh and mpirun carry.

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::launch {

/// One such line.
struct RankReport {
  int rank = 0;
  std::int64_t step = -1;   ///< steps taken so far; -1: this is about something else
  std::int64_t begun = -1;  ///< steps taken before, of a rank that begins; -1: about something else
  std::int64_t pid = 0;     ///< which process it is; 0: this is about something else
  ErrorKind kind = ErrorKind::kInternal;
  int peer = -1;      ///< the rank that an Error(kPeer) is about, when it is known
  std::string error;  ///< its message
};

/// The line of a report, with its newline.
std::string report_line(const RankReport& report);

/// What a line (without newline) reports; nothing when it is no report.
std::optional<RankReport> parse_report(std::string_view line);

/// Writes the reports of one rank. Safe to use from several threads.
class RankReporter {
 public:
  /// `fd`: where to; -1: nowhere.
  RankReporter(int fd, int rank) : fd_(fd), rank_(rank) {}

  bool enabled() const { return fd_ >= 0; }
  /// That this process is the rank.
  void begin();
  void step(std::int64_t step);
  /// That it goes on from a checkpoint of that step, or from the beginning.
  void begun(std::int64_t step);
  /// The last step that it has told of, also where nobody hears it; 0: none.
  std::int64_t last_step() const { return last_step_; }
  /// The exception that ends this rank. Returns the exit code that goes with it.
  int error(const std::exception& error);

 private:
  void write(const RankReport& report);

  int fd_;
  int rank_;
  std::int64_t last_step_ = 0;  // of the thread that trains
  std::mutex mutex_;
};

}  // namespace atl::launch
