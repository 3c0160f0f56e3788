#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/process_group.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {

/// Starts the same call on so many ranks as often as needed.
class Generations {
 public:
  /// `backend` is the name of one whose ranks are processes. Where they meet at a rendezvous it
  /// serves that: at `rendezvous` ("tcp://HOST:PORT") or, when that is empty, on a free port of
  /// this host, which other hosts reach by its name when `has_remote`. Throws Error(kUser) when
  /// this binary has no such backend, ranks of that cannot be on other hosts, mpirun is missing or
  /// the port cannot be had.
  Generations(const std::string& backend, TrainCall call, const std::string& rendezvous,
              bool has_remote);

  /// Runs one generation, with a rank on each of `hosts` (empty: this one), to its end. Where they
  /// meet at a rendezvous `elsewhere` is asked first where a rank is to be started.
  GroupEnd run(const std::vector<std::string>& hosts, const GroupOptions& options,
               SignalFd& signals, const StartElsewhere& elsewhere = {});

  /// The call that it starts.
  const TrainCall& call() const { return call_; }
  /// Where ranks meet that do so.
  std::string rendezvous() const { return server_->address(); }
  const Backend& backend() const { return backend_; }

 private:
  const Backend& backend_;
  TrainCall call_;
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
