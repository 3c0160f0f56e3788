#include "atoll/island/coordinator/membership.h"

#include "atoll/base/check.h"

namespace atl::island {

const char* name_of(MemberState state) {
  constexpr std::array<const char*, kNumMemberStates> kNames = {"joining", "syncing", "active",
                                                                "suspect", "out"};
  return kNames[static_cast<std::size_t>(state)];
}

Island& Membership::add(IslandId id, const std::string& name, const std::string& address) {
  ATOLL_CHECK(id >= 1 && id <= islands_.size() + 1, "island {} after {}", id, islands_.size());
  if (id == islands_.size() + 1) {
    islands_.emplace_back();
    islands_.back().id = id;
    tally(islands_.back(), 1);
  }
  Island& island = (*this)[id];
  island.name = name;
  island.address = address;
  return island;
}

Island* Membership::of_connection(ConnectionId connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &(*this)[found->second];
}

const Island* Membership::of_connection(ConnectionId connection) const {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &(*this)[found->second];
}

void Membership::connect(Island& island, ConnectionId connection) {
  connections_.erase(island.connection);
  island.connection = connection;
  island.last_sequence = 0;
  if (island.pulse) island.held_back = island.pulse->held_back();
  island.pulse.reset();
  if (connection != kNoConnection) connections_[connection] = island.id;
}

void Membership::tally(const Island& island, int sign) {
  states_[static_cast<std::size_t>(island.state_)] += sign;
  if (island.state_ == MemberState::kActive) {
    phases_[static_cast<std::size_t>(island.phase_)] += sign;
  }
  const bool is_gone = island.state_ == MemberState::kSuspect;
  const bool is_back =
      island.state_ == MemberState::kJoining || island.state_ == MemberState::kSyncing;
  if (is_gone && island.counts) num_counting_ += sign;
  if ((is_gone || is_back) && island.is_awaited) num_awaited_ += sign;
}

void Membership::set_state(Island& island, MemberState state) {
  tally(island, -1);
  island.state_ = state;
  tally(island, 1);
}

void Membership::set_phase(Island& island, Phase phase) {
  tally(island, -1);
  island.phase_ = phase;
  tally(island, 1);
}

void Membership::set_suspect(Island& island, bool counts, bool is_awaited) {
  tally(island, -1);
  island.counts = counts;
  island.is_awaited = is_awaited;
  tally(island, 1);
}

std::vector<ConnectionId> Membership::listeners() const {
  std::vector<ConnectionId> all;
  for (const Island& island : islands_) {
    const bool listens =
        island.state_ == MemberState::kActive || island.state_ == MemberState::kSuspect;
    if (listens && island.connection != kNoConnection) all.push_back(island.connection);
  }
  return all;
}

}  // namespace atl::island
