#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "atoll/hub/download.h"

namespace atl::hub {

/// Shows on standard error how far downloads are, as long as it lives: on a terminal a line that
/// changes twice a second, else a line of the log every 30 seconds.
class ProgressLine {
 public:
  /// `counts` must outlive this. `what` is downloaded, so many bytes in so many files.
  ProgressLine(const DownloadCounts& counts, std::string what, std::uint64_t bytes,
               std::size_t files);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void show_all();
  std::string line() const;

  const DownloadCounts& counts_;
  std::string what_;
  std::uint64_t bytes_;
  std::size_t files_;
  bool is_terminal_;
  std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl::hub
