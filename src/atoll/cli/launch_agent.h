#pragma once

// What `atoll launch` does: it starts ranks, and goes on with those that are left when some die.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "atoll/cli/launch_generation.h"
#include "atoll/cli/launch_probe.h"
#include "atoll/cli/launch_roll.h"
#include "atoll/cli/launch_roster.h"
#include "atoll/train/config.h"

namespace atl::cli {

/// The flags of `atoll launch`.
struct LaunchOptions {
  std::string recipe;
  ElasticLimits limits = {.min_ranks = 1, .max_ranks = 0, .max_restarts = 3};
  std::string backend = "gloo";
  std::string hostfile;
  std::string rendezvous;
  double regrow_after_s = 0;
};

/// The hosts of the hostfile, or this machine. This one's name is empty.
std::vector<Host> read_hosts(const LaunchOptions& options);

/// Starts island after island until the run is done or cannot go on. Over gloo, where what a rank
/// holds is held by others too, an island goes on in place when it loses ranks, and takes new ones;
/// otherwise all ranks end and start again from the newest checkpoint.
class Agent final : private IslandKeeper {
 public:
  /// All of these must outlive the agent. Throws Error(kUser) for limits that contradict each other
  /// or the hosts.
  Agent(const LaunchOptions& options, const train::TrainConfig& config,
        const std::vector<Host>& hosts, Generations& generations);

  /// Returns the exit code. Throws as finish() does, and Error(kPeer) when too few ranks are left.
  int run(SignalTap& signals);

 private:
  using Clock = std::chrono::steady_clock;

  bool goes_on_without(const RankEnd& end, std::int64_t step) override;
  std::vector<Member> joining(std::int64_t step) override;
  int rank_of(int number) const override { return roll_->rank_of(number); }

  int fitting(int num_ranks) const;
  bool fits(int num_ranks) const;
  bool is_new_loss(std::int64_t step) const;
  IslandEnd run_island_of(const std::vector<std::string>& hosts, SignalTap& signals);
  IslandEnd run_in_place(const std::vector<std::string>& hosts, SignalTap& signals);
  std::vector<Member> grow();
  void announce(const Verdict& verdict, const std::string& from, int num_ranks) const;
  int give_up(Verdict verdict) const;
  Clock::duration regrow_after() const;
  bool looks_for_room();
  bool wants_to_grow();
  void look_at_hostfile();

  const LaunchOptions& options_;
  const train::TrainConfig& config_;
  Roster roster_;
  Generations& generations_;
  std::optional<Roll> roll_;  // when ranks may regroup in place
  HostProbe probe_;
  int restarts_ = 0;
  std::int64_t lost_at_step_ = -1;  // of this island, the last time
  Clock::time_point grows_at_;
};

}  // namespace atl::cli
