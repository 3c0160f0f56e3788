#include "atoll/island/coordinator/island_table.h"

#include "atoll/base/check.h"

namespace atl::island {

const char* name_of(IslandState state) {
  constexpr std::array<const char*, kNumIslandStates> kNames = {"joining", "syncing", "active",
                                                                "suspect", "out"};
  return kNames[static_cast<std::size_t>(state)];
}

Island& IslandTable::add(IslandId id, const std::string& name, const std::string& address) {
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

Island* IslandTable::of_connection(ConnectionId connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &(*this)[found->second];
}

const Island* IslandTable::of_connection(ConnectionId connection) const {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &(*this)[found->second];
}

void IslandTable::connect(Island& island, ConnectionId connection) {
  connections_.erase(island.connection);
  island.connection = connection;
  island.last_sequence = 0;
  if (island.detector) island.held_back = island.detector->held_back();
  island.detector.reset();
  if (connection != kNoConnection) connections_[connection] = island.id;
}

void IslandTable::tally(const Island& island, int sign) {
  states_[static_cast<std::size_t>(island.state_)] += sign;
  if (island.state_ == IslandState::kActive) {
    phases_[static_cast<std::size_t>(island.phase_)] += sign;
  }
  const bool is_gone = island.state_ == IslandState::kSuspect;
  const bool is_back =
      island.state_ == IslandState::kJoining || island.state_ == IslandState::kSyncing;
  if (is_gone && island.counts) num_counting_ += sign;
  if ((is_gone || is_back) && island.is_awaited) num_awaited_ += sign;
}

void IslandTable::set_state(Island& island, IslandState state) {
  tally(island, -1);
  island.state_ = state;
  tally(island, 1);
}

void IslandTable::set_phase(Island& island, Phase phase) {
  tally(island, -1);
  island.phase_ = phase;
  tally(island, 1);
}

void IslandTable::set_suspect(Island& island, bool counts, bool is_awaited) {
  tally(island, -1);
  island.counts = counts;
  island.is_awaited = is_awaited;
  tally(island, 1);
}

std::vector<ConnectionId> IslandTable::listeners() const {
  std::vector<ConnectionId> all;
  for (const Island& island : islands_) {
    const bool listens =
        island.state_ == IslandState::kActive || island.state_ == IslandState::kSuspect;
    if (listens && island.connection != kNoConnection) all.push_back(island.connection);
  }
  return all;
}

}  // namespace atl::island
