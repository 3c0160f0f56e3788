#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/world.h"
#include "atoll/launch/roll.h"
#include "atoll/train/membership.h"

namespace atl::launch {

/// What a process is told that is a rank of an island whose ranks come and go.
struct MembershipOptions {
  std::string rendezvous;
  int number = 0;                ///< which process of the island it is
  int generation = 0;            ///< of the first roll that it may be in
  bool joins = false;            ///< the island is training already
  std::string backend = "gloo";  ///< or "tcp"
  /// What all ranks must have in common, a line each; those that join compare theirs.
  std::vector<std::string> agreement;
};

/// The worlds of one rank under `atoll launch`, over Gloo or TCP: those of the rolls that it is in.
class LaunchMembership final : public train::Membership {
 public:
  LaunchMembership(MembershipOptions options, const comm::WorldOptions& world_options);

  bool joins() const override { return options_.joins; }
  /// Throws Error(kUser) naming a setting that differs between ranks, Error(kPeer), which no rank
  /// tries to survive, when no world comes together in time or this rank is not wanted any more.
  std::unique_ptr<comm::World> next() override;
  bool wants_change() override;

 private:
  void get_ready();
  std::vector<Listed> next_roll(const std::string& why);
  bool come_together(const std::vector<Listed>& ranks);
  bool is_outdated();
  std::unique_ptr<comm::World> open(const std::vector<Listed>& ranks);

  MembershipOptions options_;
  comm::WorldOptions world_options_;
  std::unique_ptr<comm::Rendezvous> rendezvous_;
  int generation_;    // the last whose roll this rank has read
  int settled_ = -1;  // the last that this rank has led to a step
  bool was_listed_ = false;
  bool is_first_ = true;
  std::chrono::steady_clock::time_point asked_;
};

}  // namespace atl::launch
