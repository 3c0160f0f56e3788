#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/world.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/rank_list.h"
#include "atoll/train/ranks/membership.h"

namespace atl::launch {

/// Options of a process that is a rank of a group whose ranks come and go.
struct MembershipOptions {
  std::string rendezvous;
  int number = 0;       ///< which process of the group it is
  int generation = 0;   ///< of the first rank list that it may be in
  bool joins = false;   ///< the group is training already
  std::string backend;  ///< its name; empty: the default of those with a rendezvous
  /// What all ranks must have in common, a line each; those that join compare theirs.
  std::vector<std::string> agreement;
};

/// The worlds of one rank under `atoll launch`, one for each rank list it is in.
class LaunchMembership final : public train::Membership {
 public:
  /// Throws Error(kUser) for a backend whose ranks cannot regroup.
  LaunchMembership(MembershipOptions options, const comm::WorldOptions& world_options);

  bool joins() const override { return options_.joins; }
  /// Throws Error(kUser) naming a setting that differs between ranks, Error(kPeer), which no rank
  /// tries to survive, when no world comes together in time or this rank is not wanted any more.
  std::unique_ptr<comm::World> next() override;
  bool wants_change() override;

 private:
  void get_ready();
  std::vector<ListedRank> next_rank_list(const std::string& why);
  bool come_together(const std::vector<ListedRank>& ranks);
  bool is_outdated();
  std::unique_ptr<comm::World> open(const std::vector<ListedRank>& ranks);

  MembershipOptions options_;
  const Backend& backend_;
  comm::WorldOptions world_options_;
  std::unique_ptr<comm::Rendezvous> rendezvous_;
  int generation_;    // the last whose rank list this rank has read
  int settled_ = -1;  // the last that this rank has led to a step
  bool was_listed_ = false;
  bool is_first_ = true;
  std::chrono::steady_clock::time_point asked_;
};

}  // namespace atl::launch
