#pragma once

// A trial that a tuner has leased to this worker, with the thread that works on it.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/tune/lease/file_transfer.h"
#include "atoll/tune/lease/lease_messages.h"
#include "atoll/tune/lease/wake_event.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// Fetches the trial's files, trains, and gives back what it has written, in a thread of its own.
/// Destroying it stops that thread and the trial's process at once. Its functions are for any
/// thread.
class LeasedTrial {
 public:
  /// Begins. All references must outlive this; `wake` is woken when there is news or a failure.
  LeasedTrial(const Study& study, Lease lease, FileTransfer& transfer, const WakeEvent& wake,
              const std::string& program, std::int64_t threads);

  const LeaseId& id() const { return lease_.id; }
  /// What the tuner is to be told now, again after each new connection.
  std::optional<LeaseMessage> news();
  /// Whether there is something that was not said yet, and takes it as said.
  bool take_news();
  /// There is a new connection: the tuner may be another process, which knows of no file.
  void connected();
  /// The tuner wants those of the files that Ended has named.
  void want(const std::vector<int>& files);
  /// Ends it at once: the trial is another's now, or this process ends.
  void stop() { thread_.request_stop(); }
  /// What went wrong here, for which the trial is not to blame.
  std::optional<Error> failure();

 private:
  enum class State { kWorking, kEnded, kPutting, kPut };

  void run(const std::stop_token& stop);
  bool prepare(const std::stop_token& stop);
  bool train(const std::stop_token& stop);
  void give_back(const std::stop_token& stop);
  void set(State state);
  std::filesystem::path dir() const;

  const Study& study_;
  const Lease lease_;
  FileTransfer& transfer_;
  const WakeEvent& wake_;
  const std::string& program_;
  const std::int64_t threads_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  State state_ = State::kWorking;
  bool has_news_ = false;
  int code_ = 0;
  std::string line_;
  std::vector<FileEntry> files_;
  std::vector<int> wanted_;
  std::optional<Error> failure_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace atl::tune
