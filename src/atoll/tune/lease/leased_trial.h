#pragma once

// A trial that the tuner has leased to this worker, with the thread that trains it.

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

/// Fetches the trial's files, trains the trial in a process, and sends the files that were written
/// back to the tuner, all in a thread of its own. The destructor stops that thread and the process
/// at once. All functions may be called from any thread.
class LeasedTrial {
 public:
  /// Starts the thread. All references must outlive this. Calls wake.wake() when there is news or a
  /// failure. `threads`: for the trial's process.
  LeasedTrial(const Study& study, Lease lease, FileTransfer& transfer, const WakeEvent& wake,
              const std::string& program, std::int64_t threads);

  const LeaseId& id() const { return lease_.id; }
  /// The message that the tuner must get in the present state, if any: Ended or Delivered.
  std::optional<LeaseMessage> news();
  /// Whether news() has changed since the last call; the caller must send news() then.
  bool take_news();
  /// Tells this that the worker has connected again. The tuner may have been restarted and know no
  /// files of the lease, so Ended becomes news again.
  void connected();
  /// The tuner has asked for the files with these indices into Ended::files.
  void want(const std::vector<int>& files);
  /// Asks the thread to kill the trial's process and end. Does not wait.
  void stop() { thread_.request_stop(); }
  /// The error that ended the thread, if any: of the worker, not of the trial's process.
  std::optional<Error> failure();

 private:
  // kPutting: sends the files that the tuner wants. kPut: has sent them.
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
