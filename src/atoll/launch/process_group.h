#pragma once

// The ranks of a launch as a group of processes: starts them, passes signals on, and ends them all
// when one fails.

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "atoll/base/processes/process.h"
#include "atoll/base/processes/stop_signals.h"
#include "atoll/launch/group_outcome.h"
#include "atoll/launch/watched.h"

namespace atl::launch {

/// Decides for a group whose ranks come and go. In such a group RankProcess::rank is the number of
/// a process, which stays the same when its rank changes.
class ElasticPolicy {
 public:
  virtual ~ElasticPolicy() = default;
  /// A process has failed: do the others go on without it? Asked until the answer is no. `step`:
  /// the last that any has told of; -1: none.
  virtual bool goes_on_without(const RankEnd& end, std::int64_t step) = 0;
  /// Processes to start beside those that run. Asked every GroupOptions::ask_every.
  virtual std::vector<RankProcess> joining(std::int64_t step) = 0;
  /// The present rank of a process; -1: it has not joined yet.
  virtual int rank_of(int number) const = 0;
};

/// How a group is watched.
struct GroupOptions {
  /// How long the others may take to end by themselves after one has failed.
  std::chrono::milliseconds grace{2000};
  /// Asked every `ask_every` while all is well, after the policy: true stops the ranks after a
  /// checkpoint, as SIGTERM does. Empty: never.
  std::function<bool()> wants_to_stop;
  /// Null: ranks do not change.
  ElasticPolicy* policy = nullptr;
  std::chrono::milliseconds ask_every{1000};
};

/// Blocks the stop signals (base/processes/stop_signals.h) in the threads that exist and will be
/// made, so that run_group() can read them from a descriptor; those that are ignored stay so.
/// Children are not affected. The mask is as it was afterwards.
class SignalFd {
 public:
  SignalFd();
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that has arrived and is a wish; 0: none. After the first comes another only
  /// when all is to end at once (StopWishes::Wish::kNow).
  int next();
  /// SIGUSR1 asks ranks to save and go on (run.on_signal): next() gives each, and they say nothing
  /// of stopping.
  void pass_usr1_on() { passes_usr1_ = true; }
  /// Whether it is such a signal.
  bool only_saves(int signal) const { return passes_usr1_ && signal == SIGUSR1; }

 private:
  // Longer than in the processes that get a copy, which see the first signal later: what ends this
  // one at once must end them.
  StopWishes wishes_{kSameWish + std::chrono::milliseconds(500)};
  Fd fd_;
  sigset_t before_;
  bool passes_usr1_ = false;
};

/// Starts the processes and returns when all have ended. Of ranks other than 0, what they write to
/// standard error comes with "[rank 2] " before it, without what merely informs, and each line
/// once. Stop signals are passed on. Throws
/// Error(kIo) when a process cannot be started; none is left then.
GroupEnd run_group(const std::vector<RankProcess>& processes, const GroupOptions& options,
                   SignalFd& signals);

}  // namespace atl::launch
