#pragma once

// The ranks of one island as processes: starts them, passes signals on, and ends them all when one
// fails.

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "atoll/base/process.h"
#include "atoll/launch/verdict.h"
#include "atoll/launch/watched.h"

namespace atl::launch {

/// What is asked while an island runs whose ranks come and go. There, Member::rank is the number
/// of a process, which stays the same while its rank does not.
class IslandKeeper {
 public:
  virtual ~IslandKeeper() = default;
  /// A process has failed: do the others go on without it? Asked until the answer is no. `step`:
  /// the last that any has told of; -1: none.
  virtual bool goes_on_without(const RankEnd& end, std::int64_t step) = 0;
  /// Processes to start beside those that run. Asked every IslandOptions::ask_every.
  virtual std::vector<Member> joining(std::int64_t step) = 0;
  /// The rank that a process now is; -1: none, because it is still to join.
  virtual int rank_of(int number) const = 0;
};

/// How an island is watched.
struct IslandOptions {
  /// How long the others may take to end by themselves after one has failed.
  std::chrono::milliseconds grace{2000};
  /// Asked every `ask_every` while all is well, after the keeper: true stops the ranks after a
  /// checkpoint, as SIGTERM does. Empty: never.
  std::function<bool()> wants_to_stop;
  /// Null: ranks do not change.
  IslandKeeper* keeper = nullptr;
  std::chrono::milliseconds ask_every{1000};
};

/// Blocks SIGINT and SIGTERM in the threads that exist and will be made, so that run_island() can
/// read them from a descriptor. Children are not affected. The mask is as it was afterwards.
class SignalTap {
 public:
  SignalTap();
  ~SignalTap();
  SignalTap(const SignalTap&) = delete;
  SignalTap& operator=(const SignalTap&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that has come; 0: none.
  int next();

 private:
  Fd fd_;
  sigset_t before_;
};

/// Starts the members and returns when all have ended. Of ranks other than 0, what they write to
/// standard error comes with "[rank 2] " before it, without what merely informs, and each line
/// once. SIGINT and SIGTERM are passed on. Throws
/// Error(kIo) when a process cannot be started; none is left then.
IslandEnd run_island(const std::vector<Member>& members, const IslandOptions& options,
                     SignalTap& signals);

}  // namespace atl::launch
