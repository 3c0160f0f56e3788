#pragma once

#include <chrono>
#include <string>

#include "atoll/param_server/links.h"
#include "atoll/param_server/pauses.h"
#include "atoll/param_server/worker.h"

namespace atl::param_server {

/// The connections of a worker: carries what its state machine sends and gets. One thread uses it.
class WorkerConnection {
 public:
  /// Begins to connect. `worker` must outlive this. `timeout_seconds`: how long the scheduler may
  /// be away.
  WorkerConnection(Worker& worker, const std::string& scheduler, const LinkOptions& options,
                   double timeout_seconds);

  /// Sends what the worker wants to, waits for at most `wait`, and gives it what has come. Throws
  /// Error(kUser) when it is refused, Error(kPeer) when the scheduler is gone for too long.
  void pump(std::chrono::milliseconds wait);
  /// The same without a wait.
  void flush() { pump(std::chrono::milliseconds(0)); }
  /// Tells the scheduler what it was not told yet, and ends.
  void finish();

 private:
  void take(const Mailbox::Letter& letter);
  void take_from_server(const Mailbox::Letter& letter);
  void send();
  void check();

  Worker& worker_;
  double timeout_seconds_;
  Mailbox mailbox_;
  bool has_scheduler_ = false;
  std::string why_not_;
  std::chrono::steady_clock::time_point away_since_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point retry_at_ = away_since_;
  Pauses pauses_;
  Links links_;  // last: its threads use the mailbox
};

}  // namespace atl::param_server
