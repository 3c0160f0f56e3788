#pragma once

// What `atoll serve` does over time, as a directory that `atoll watch` shows.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "atoll/serve/api/load_record.h"

namespace atl::cli {

/// Writes a record of a server's load to DIR/metrics.jsonl again and again, on a thread of its own,
/// until it is destroyed. Steps are seconds of serving; those of an earlier server in the directory
/// go on.
class ServeLog {
 public:
  /// Makes the directory. `times` and `generator` must outlive this. Throws Error(kUser) for the
  /// directory of a training run, or of another server that runs.
  ServeLog(const std::filesystem::path& directory, std::chrono::milliseconds every,
           const serve::api::RequestTimes& times, const serve::Generator& generator);
  /// Writes what is left.
  ~ServeLog();
  ServeLog(const ServeLog&) = delete;
  ServeLog& operator=(const ServeLog&) = delete;

 private:
  class Directory;

  void run();
  void write();

  const std::chrono::milliseconds every_;
  const serve::api::RequestTimes& times_;
  const serve::Generator& generator_;
  std::unique_ptr<Directory> directory_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_;
  serve::api::LoadCounts before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl::cli
