#pragma once

// The processes of a trial, one after the other.

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/files/append_file.h"
#include "atoll/base/processes/process.h"
#include "atoll/tune/search/trial.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// `atoll train` up to a step, and `atoll eval` after it where there is a task. They end with this
/// process, however it ends.
class TrialProcess {
 public:
  /// Makes the run's directory ready and starts `program`; waits in step() while another process
  /// is still in that run. `study` must outlive this. Throws Error.
  TrialProcess(const Study& study, const Trial& trial, std::int64_t step, std::string program,
               std::int64_t threads);

  int trial() const { return trial_.number; }
  std::int64_t target() const { return step_; }
  /// The last that it has said.
  const std::string& last_line() const { return last_line_; }

  /// Adds the descriptors to wait for.
  void watch(std::vector<pollfd>& polls) const;
  /// Asks it to stop.
  void signal(int number);
  /// Ends it and what it has started at once.
  void kill();
  /// Its exit code when all is done; nothing while it runs.
  std::optional<int> step();

 private:
  void begin();
  void answer();
  void start(std::vector<std::string> argv);

  const Study& study_;
  Trial trial_;  // as it was when this began
  std::int64_t step_;
  std::string program_;
  std::int64_t threads_;
  std::optional<AppendFile> log_;
  std::optional<Child> child_;
  LineReader reader_;
  std::string last_line_;
  bool is_answering_ = false;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point wait_until_;
};

}  // namespace atl::tune
