#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/process_group.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {

/// Which of a run's ranks are started here, where others start the rest.
struct RanksHere {
  int first = 0;
  int ranks = 0;  ///< of the run; 0: those that are started here
};

/// Starts the same call on so many ranks as often as needed.
class Generations {
 public:
  /// `backend` is the name of one whose ranks are processes. Where they meet at a rendezvous it
  /// serves that, unless `here` begins with another rank than the first: at `rendezvous`
  /// ("tcp://HOST:PORT") or, when that is empty, on a free port of this host, which other hosts
  /// reach by its name when `has_remote`. Throws Error(kUser) when this binary has no such backend,
  /// ranks of that cannot be on other hosts, mpirun is missing or the port cannot be had.
  Generations(const std::string& backend, TrainCall call, const std::string& rendezvous,
              bool has_remote, RanksHere here = {});

  /// Runs one generation, with a rank on each of `hosts` (empty: this one), to its end. Where they
  /// meet at a rendezvous `elsewhere` is asked first where a rank is to be started.
  GroupEnd run(const std::vector<std::string>& hosts, const GroupOptions& options,
               SignalFd& signals, const StartElsewhere& elsewhere = {});

  /// The call that it starts.
  const TrainCall& call() const { return call_; }
  /// Where ranks meet that do so.
  std::string rendezvous() const { return server_ ? server_->address() : rendezvous_; }
  const Backend& backend() const { return backend_; }

 private:
  const Backend& backend_;
  TrainCall call_;
  RanksHere here_;
  std::string rendezvous_;  // that another process serves
  std::unique_ptr<comm::RendezvousServer> server_;
  int generation_ = 0;
};

/// Turns the end of a group into that of this process: the exit code when it is done or was
/// stopped; otherwise throws the cause as an Error of one line (kUser for a mistake).
int finish(const GroupOutcome& outcome);

/// Host and port of "tcp://HOST:PORT" ("::1" of "tcp://[::1]:80"). Throws Error(kUser) for anything
/// else.
std::pair<std::string, int> split_address(const std::string& address);

}  // namespace atl::launch
