#pragma once

// What `atoll launch` does: it starts ranks, and goes on with those that are left when some die.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/launch/agent_server.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/probe.h"
#include "atoll/launch/rank_list.h"
#include "atoll/launch/slots.h"
#include "atoll/train/config/config.h"

namespace atl::launch {

/// The flags of `atoll launch`.
struct LaunchOptions {
  std::string recipe;
  ElasticLimits limits = {.min_ranks = 1, .max_ranks = 0, .max_restarts = 3};
  bool is_min_given = false;  ///< limits.min_ranks was
  bool is_max_given = false;  ///< limits.max_ranks was
  int slots = 0;              ///< ranks that this machine takes; 0: as many as there may be
  std::string backend = default_backend(Bootstrap::kRendezvous).name;
  std::string hostfile;
  std::string rendezvous;  ///< given: others may join
  double regrow_after_s = 0;
  std::string join;  ///< the address of a launch to offer ranks to; empty: this is one itself
  std::string name;  ///< what that one calls this machine; empty: as it calls itself
  /// Told when ranks have died and all others ended, with the last step and why; may be empty.
  std::function<void(std::int64_t step, const std::string& cause)> on_lost = {};
};

/// Where a launch is, for those who look.
struct LaunchStatus {
  int ranks = 0;     ///< that run now
  int places = 0;    ///< for ranks, on hosts that can be reached
  int restarts = 0;  ///< that count for --max-restarts
  int losses = 0;    ///< ranks that have died
  int groups = 0;    ///< that were started
};

/// The hosts of the hostfile, or this machine. This one's name is empty.
std::vector<Host> read_hosts(const LaunchOptions& options);

/// Starts group after group until the run is done or cannot go on. Over gloo, where what a rank
/// holds is held by others too, a group goes on in place when it loses ranks, and takes new ones;
/// otherwise all ranks end and start again from the newest checkpoint. Where options.rendezvous is
/// given, agents of other machines may offer ranks (server.h).
class Agent final : private ElasticPolicy {
 public:
  /// All of these but `agreement`, which ranks that join must have too, must outlive the agent.
  /// Throws Error(kUser) for limits that contradict each other or the hosts.
  Agent(const LaunchOptions& options, const train::TrainConfig& config,
        std::vector<std::string> agreement, const std::vector<Host>& hosts,
        Generations& generations);

  /// Returns the exit code. Throws as finish() does, and Error(kPeer) when too few ranks are left.
  int run(SignalFd& signals);

  /// From any thread.
  LaunchStatus status() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool goes_on_without(const RankEnd& end, std::int64_t step) override;
  std::vector<RankProcess> joining(std::int64_t step) override;
  int rank_of(int number) const override { return rank_list_->rank_of(number); }

  int run_all(SignalFd& signals);
  int fitting(int num_ranks) const;
  bool fits(int num_ranks) const;
  bool can_lose(int rank) const;
  std::string why_not(int num_ranks) const;
  void tell_of_fewer(int num_ranks, int num_places) const;
  bool is_new_loss(std::int64_t step) const;
  GroupEnd run_group_of(const std::vector<std::string>& hosts, SignalFd& signals);
  GroupEnd run_in_place(const std::vector<std::string>& hosts, SignalFd& signals);
  std::vector<RankProcess> grow(int most);
  RankProcess process_on(const std::string& host, const RankOrder& order);
  std::optional<RankProcess> process_of_agent(const std::string& host, const RankOrder& order);
  void announce(const GroupOutcome& outcome, const std::string& from, int num_ranks) const;
  void note_status(int num_ranks);
  void note_losses(int count);
  int give_up(GroupOutcome outcome) const;
  Clock::duration regrow_after() const;
  bool looks_for_room();
  bool wants_to_grow();
  int room() const;
  void look_at_hostfile();
  void update_places();
  void open_agent_server(std::vector<std::string> agreement);
  bool is_agent(const std::string& host) const;
  void poll_agent_server();
  void let_go();
  bool takes_newcomers();
  int wait_for_ranks(SignalFd& signals);

  const LaunchOptions& options_;
  const train::TrainConfig& config_;
  Slots slots_;
  Generations& generations_;
  std::optional<RankList> rank_list_;  // when ranks may regroup in place
  HostProbe probe_;
  int restarts_ = 0;
  bool has_begun_ = false;
  std::int64_t lost_at_step_ = -1;  // of this group, the last time
  int lost_in_place_ = 0;           // ranks that this group has gone on without
  Clock::time_point grows_at_;
  std::vector<Host> hosts_;                    // but for agents
  std::unique_ptr<AgentServer> agent_server_;  // null: nobody may join
  std::vector<std::string> new_agents_;        // agents that have come and were not looked at
  std::set<int> dismissed_;                    // processes of this group whose agent leaves
  bool has_lost_ = false;                      // a rank, for which a spare one may be there
  bool is_saving_ = false;  // ranks that have parts of the model save what they have
  bool must_stop_ = false;  // an agent leaves, and the others have to start again
  mutable std::mutex mutex_;
  LaunchStatus status_;  // under mutex_
};

}  // namespace atl::launch
