#pragma once

// `atoll launch --join`: an agent that offers ranks of this machine to a launch on another one.

#include <string>
#include <vector>

#include "atoll/launch/process_group.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {

/// What an agent offers, and to whom.
struct JoinOptions {
  /// Where the launch serves its rendezvous: "HOST:PORT", "tcp://HOST:PORT", or "file:///DIRECTORY"
  /// where it has left its address.
  std::string address;
  std::string name;  ///< what the launch calls this machine
  int slots = 1;
  TrainCall call;                      ///< how ranks are started here
  std::vector<std::string> agreement;  ///< agreement_lines() here
  double find_timeout_s = 30;          ///< until a launch answers at the address
  double leave_timeout_s = 300;        ///< until its ranks have ended when it leaves
};

/// Offers the ranks and runs them until the launch is over, or a stop signal: then its ranks
/// leave between two steps; a second signal ends them at once. No rank outlives it. Returns the
/// exit code of the launch, or 128 plus the signal. Throws Error(kUser) when nobody answers, what
/// answers is no launch that takes ranks, or it refuses them; Error(kPeer) when the launch fails or
/// is gone.
int join_launch(const JoinOptions& options, SignalFd& signals);

}  // namespace atl::launch
