// Connections and links: the network half of Simulator.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/island/simulation/simulator.h"
#include "atoll/island/simulation/trace.h"

namespace atl::island {

namespace {

// A connection over which nothing comes through is given up by both ends.
constexpr Seconds kKeepalive = 8;
constexpr Seconds kConnectTimeout = 2;

}  // namespace

Seconds Simulator::transfer(double bytes, const std::vector<int>& islands) {
  Seconds slowest = 0;
  for (const int island : islands) {
    const SimulatedLink link = options_.link_at ? options_.link_at(now(), island) : options_.link;
    const Seconds wire = link.bits_per_second > 0 ? bytes * 8 / link.bits_per_second : 0;
    slowest = std::max(slowest, 2 * link.latency + wire);
  }
  return slowest * (1 + 0.1 * uniform());
}

void Simulator::occupy(int island, Seconds duration) {
  Seconds& until = busy_until_[static_cast<std::size_t>(island)];
  until = std::max(until, now() + duration);
}

bool Simulator::reaches(int from, IslandId to, bool is_star) const {
  const auto found = by_id_.find(to);
  if (found == by_id_.end()) return false;
  const int other = found->second;
  const SimulatedIsland& island = *islands_[static_cast<std::size_t>(other)];
  if (!island.is_up() || island.is_stopped()) return false;
  if (isolated_[static_cast<std::size_t>(from)] > 0) return false;
  if (isolated_[static_cast<std::size_t>(other)] > 0) return false;
  if (is_star) return coordinator_.has_value();
  const auto pair = pair_cuts_.find({std::min(from, other), std::max(from, other)});
  return pair == pair_cuts_.end() || pair->second == 0;
}

SimulatedIsland* Simulator::island_of(IslandId id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  return islands_[static_cast<std::size_t>(found->second)].get();
}

std::shared_ptr<const Reduce> Simulator::share(const Stamp& stamp, const Reduce& reduce) {
  Stamp key = stamp;
  key.sequence = 0;  // an island that comes later is told again
  const bool is_same =
      shared_ && shared_stamp_ == key && *shared_ == reduce;  // not of others' pairs
  if (!is_same) {
    shared_ = std::make_shared<const Reduce>(reduce);
    shared_stamp_ = key;
  }
  return shared_;
}

void Simulator::connect(int island, std::uint64_t life, Seconds after) {
  schedule(after, [this, island, life] {
    SimulatedIsland& self = *islands_[static_cast<std::size_t>(island)];
    if (!self.is_up() || self.life() != life) return;
    const auto& cuts = cuts_[static_cast<std::size_t>(island)];
    const bool is_cut = cuts[0] > 0 || cuts[1] > 0;
    if (!coordinator_ || is_cut) {
      const Seconds wait = is_cut ? kConnectTimeout : 2 * options_.link.latency;
      return schedule(wait, [this, island, life] {
        SimulatedIsland& other = *islands_[static_cast<std::size_t>(island)];
        if (other.life() == life) other.receive({0, CoordinatorLost{"it cannot be reached"}});
      });
    }
    const ConnectionId id = next_connection_++;
    links_[id] = {.island = island};
    connection_of_[static_cast<std::size_t>(island)] = id;
    handle({now(), ConnectionOpened{id}});
    transmit(id, kToIsland, [&self] { self.receive({0, CoordinatorReached{}}); });
  });
}

// An end of a connection learns that the other closed it after everything that was sent before.
void Simulator::disconnect(int island, bool is_silent) {
  ConnectionId& id = connection_of_[static_cast<std::size_t>(island)];
  const auto found = links_.find(id);
  const ConnectionId closed = std::exchange(id, kNoConnection);
  if (found == links_.end()) return;
  found->second.is_open_there = false;
  if (is_silent || !found->second.is_open_here) return;
  transmit(closed, kToCoordinator, [this, closed] {
    const auto link = links_.find(closed);
    if (link == links_.end() || !link->second.is_open_here) return;
    link->second.is_open_here = false;
    handle({now(), ConnectionClosed{closed, "closed by the island"}});
  });
}

void Simulator::close_at_coordinator(ConnectionId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  found->second.is_open_here = false;
  const int island = found->second.island;
  transmit(id, kToIsland, [this, id, island] {
    const auto link = links_.find(id);
    link->second.is_open_there = false;
    if (connection_of_[static_cast<std::size_t>(island)] == id) {
      connection_of_[static_cast<std::size_t>(island)] = kNoConnection;
    }
    islands_[static_cast<std::size_t>(island)]->receive({0, CoordinatorLost{"closed by it"}});
  });
}

void Simulator::send(int island, const MessageFromIsland& message) {
  const ConnectionId id = connection_of_[static_cast<std::size_t>(island)];
  if (id == kNoConnection) return;
  ++num_messages_;
  transmit(id, kToCoordinator, [this, id, island, message] {
    if (!std::holds_alternative<Heartbeat>(message.body)) {
      trace([&] {
        return fmt::format("{:9.4f} island {}: {}", now(), island + 1, describe(message));
      });
    }
    handle({now(), ConnectionReceived{id, message}});
  });
}

void Simulator::transmit(ConnectionId id, Direction direction, std::function<void()> what) {
  Link& link = links_.at(id);
  Seconds& last = link.last[direction];
  last = std::max(last, now() + options_.link.latency * (1 + 0.5 * uniform()));
  // The message queues behind all bytes under way, as far as the queue has room.
  const Seconds before = busy_until_[static_cast<std::size_t>(link.island)] - now();
  last = std::max(last, now() + std::min(options_.link.queue, before));
  schedule(last - now(),
           [this, id, direction, what = std::move(what)] { deliver(id, direction, what); });
}

void Simulator::deliver(ConnectionId id, Direction direction, std::function<void()> what) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  const auto island = static_cast<std::size_t>(link.island);
  const bool is_open = direction == kToCoordinator ? link.is_open_here : link.is_open_there;
  if (!is_open) {
    const bool is_dead = !link.is_open_here && !link.is_open_there;
    if (is_dead && link.held[0].empty() && link.held[1].empty()) links_.erase(found);
    return;
  }
  if (cuts_[island][direction] > 0 || !link.held[direction].empty()) {
    link.held[direction].push_back(std::move(what));
    return;
  }
  what();
}

void Simulator::release(ConnectionId id, Direction direction) {
  for (;;) {
    const auto found = links_.find(id);
    if (found == links_.end() || found->second.held[direction].empty()) return;
    Link& link = found->second;
    const std::function<void()> what = std::move(link.held[direction].front());
    link.held[direction].pop_front();
    const bool is_open = direction == kToCoordinator ? link.is_open_here : link.is_open_there;
    if (is_open) what();
  }
}

void Simulator::cut(int island, Direction direction, int sign) {
  const auto index = static_cast<std::size_t>(island);
  int& count = cuts_[index][direction];
  count += sign;
  const ConnectionId id = connection_of_[index];
  if (count > 0) {
    if (id == kNoConnection) return;
    return schedule(kKeepalive * (1 + uniform()),
                    [this, island, id] { break_if_still_cut(island, id); });
  }
  // What was held comes through now; it may close the connection, or open others.
  std::vector<ConnectionId> healed;
  for (const auto& [connection, link] : links_) {
    if (link.island == island && !link.held[direction].empty()) healed.push_back(connection);
  }
  for (const ConnectionId connection : healed) release(connection, direction);
}

void Simulator::break_if_still_cut(int island, ConnectionId id) {
  const auto index = static_cast<std::size_t>(island);
  const auto found = links_.find(id);
  if (found == links_.end() || (cuts_[index][0] == 0 && cuts_[index][1] == 0)) return;
  Link& link = found->second;
  link.held[0].clear();
  link.held[1].clear();
  const bool was_open_there = std::exchange(link.is_open_there, false);
  const bool was_open_here = std::exchange(link.is_open_here, false);
  if (connection_of_[index] == id) connection_of_[index] = kNoConnection;
  if (was_open_here) handle({now(), ConnectionClosed{id, "nothing comes through"}});
  if (was_open_there) islands_[index]->receive({0, CoordinatorLost{"nothing comes through"}});
}

}  // namespace atl::island
