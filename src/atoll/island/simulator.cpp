#include "atoll/island/simulator.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/simulation_trace.h"

namespace atl::island {

namespace {

using Kind = SimulatedFault::Kind;

constexpr Seconds kTick = 0.25;
// A connection over which nothing comes through is given up by both ends.
constexpr Seconds kKeepalive = 8;
constexpr Seconds kConnectTimeout = 2;

double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Simulator::Simulator(const SimulationOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed), rng_(seed, RngPurpose::kSynthetic), audit_(options.plan) {
  start_coordinator();
  for (int i = 0; i < options.num_islands; ++i) add_island();
  for (const SimulatedFault& fault : options.faults) add(fault);
}

Simulator::~Simulator() = default;

void Simulator::schedule(Seconds after, std::function<void()> what) {
  queue_.push({now_ + std::max(0.0, after), ++order_, std::move(what)});
}

double Simulator::uniform() {
  return rng_.uniform(num_drawn_++);
}

void Simulator::run(Seconds until) {
  while (!queue_.empty() && queue_.top().when <= until) {
    // The top is const only because moving it could break the order; it is popped at once.
    Happening next = std::move(const_cast<Happening&>(queue_.top()));
    queue_.pop();
    now_ = next.when;
    next.what();
    if (audit_.violations().size() > 0) return;
    const bool is_over = is_finished_ || !halted_.empty();
    const bool is_quiet = std::all_of(islands_.begin(), islands_.end(),
                                      [](const auto& island) { return island->has_ended(); });
    if (is_over && is_quiet) return;
    if (options_.max_outer_steps > 0 && audit_.outer_step() >= options_.max_outer_steps) return;
  }
}

SimulationReport Simulator::report() {
  const bool is_done = is_finished_ || (options_.max_outer_steps > 0 &&
                                        audit_.outer_step() >= options_.max_outer_steps);
  if (is_finished_) audit_.finish(true, now_);
  if (!is_done && halted_.empty() && audit_.violations().empty()) {
    audit_.violation(
        fmt::format("not finished: {} outer steps, {} of {} batches", audit_.outer_step(),
                    audit_.num_batches(), options_.plan.total_batches),
        now_);
  }
  SimulationReport report = {.seed = seed_, .is_finished = is_done, .seconds = now_};
  Seconds trained = 0;
  for (const auto& island : islands_) {
    trained += island->trained_seconds();
    report.evictions += island->was_turned_out() ? 1 : 0;
  }
  const double capacity = now_ * static_cast<double>(islands_.size());
  double work = 0;
  for (int i = 0; i < options_.num_islands; ++i) {
    const auto index = static_cast<std::size_t>(i);
    work += index < options_.speeds.size() ? options_.speeds[index] : 1;
  }
  if (capacity > 0) {
    report.utilisation = std::min(1.0, trained / capacity);
    report.goodput = std::min(
        1.0, static_cast<double>(audit_.num_batches()) * options_.step_seconds / (now_ * work));
  }
  report.bytes = bytes_;
  report.commits = audit_.num_commits();
  report.aborts = audit_.num_attempts() - audit_.num_commits();
  report.voids = audit_.num_voids();
  report.batches = audit_.num_batches();
  report.crashes = num_crashes_;
  report.messages = num_messages_;
  report.coordinator_cpu = cpu_;
  report.longest_pause = audit_.longest_pause();
  report.halted = halted_;
  report.violations = audit_.violations();
  return report;
}

// ---- the coordinator ----

void Simulator::start_coordinator() {
  CoordinatorOptions options;
  options.identity.run = "simulated";
  options.plan = options_.plan;
  options.out_after = options_.out_after;
  options.void_after = options_.void_after;
  ++life_;
  const LogStarted started = {.fence = ++fence_};
  log_.push_back({.unix_seconds = now_, .body = started});
  audit_.appended(started, now_);
  try {
    coordinator_.emplace(options, fence_, log_);
    trace([&] { return fmt::format("{:9.4f} coordinator starts", now_); });
  } catch (const Error& error) {
    return audit_.violation(fmt::format("the log cannot be read again: {}", error.what()), now_);
  }
  tick(life_);
}

void Simulator::kill_coordinator(Seconds for_how_long) {
  if (!coordinator_) return;
  trace([&] { return fmt::format("{:9.4f} coordinator is killed", now_); });
  coordinator_.reset();
  ++life_;
  waiting_.clear();
  dies_midway_ = false;
  for (auto& [id, link] : links_) {
    if (link.is_open_here) close_at_coordinator(id);
  }
  schedule(for_how_long, [this] { start_coordinator(); });
}

void Simulator::tick(std::uint64_t life) {
  if (life != life_) return;
  handle({now_, ClockTicked{}});
  schedule(kTick, [this, life] { tick(life); });
}

void Simulator::handle(const CoordinatorEvent& event) {
  if (!coordinator_) return;
  if (coordinator_stops_ > 0) {
    waiting_.push_back(event);
    return;
  }
  std::vector<CoordinatorAction> actions;
  const double before = options_.measures_cpu ? cpu_seconds() : 0;
  try {
    actions = coordinator_->handle({now_, event.what});
  } catch (const Error& error) {
    return audit_.violation(fmt::format("the coordinator: {}", error.what()), now_);
  }
  if (options_.measures_cpu) cpu_ += cpu_seconds() - before;
  std::size_t count = actions.size();
  const bool dies = dies_midway_ && count > 0;
  if (dies) count = static_cast<std::size_t>(uniform() * static_cast<double>(count + 1));
  const std::uint64_t life = life_;
  for (std::size_t i = 0; i < std::min(count, actions.size()) && life == life_; ++i) {
    perform(actions[i]);
  }
  if (dies) kill_coordinator(down_for_);
}

void Simulator::perform(const CoordinatorAction& action) {
  if (const auto* send = std::get_if<SendToIslands>(&action)) {
    const auto message = std::make_shared<const MessageToIsland>(send->message);
    if (const auto* finish = std::get_if<Finish>(&message->body)) {
      if (!coordinator_->halted().empty()) halted_ = finish->why;
    }
    for (const ConnectionId id : send->to) {
      const auto link = links_.find(id);
      if (link == links_.end()) continue;
      SimulatedIsland* island = islands_[static_cast<std::size_t>(link->second.island)].get();
      if (const auto* welcome = std::get_if<Welcome>(&message->body)) {
        named(welcome->island, link->second.island);
      }
      ++num_messages_;
      transmit(id, kToIsland, [this, island, message] {
        trace([&] {
          return fmt::format("{:9.4f} to {}: {}", now_, island->name(), describe(*message));
        });
        island->receive({0, CoordinatorSaid{*message}});
      });
    }
  } else if (const auto* append = std::get_if<AppendToLog>(&action)) {
    log_.push_back({.unix_seconds = now_, .body = append->body});
    trace([&] { return fmt::format("{:9.4f} log: {}", now_, describe(append->body)); });
    audit_.appended(append->body, now_);
    if (std::holds_alternative<LogFinished>(append->body)) is_finished_ = true;
  } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
    close_at_coordinator(close->connection);
  }
}

// ---- the network ----

Seconds Simulator::transfer(double bytes) {
  const double speed = options_.link.bits_per_second;
  const Seconds wire = speed > 0 ? bytes * 8 / speed : 0;
  return (2 * options_.link.latency + wire) * (1 + 0.1 * uniform());
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
  if (!shared_ || shared_stamp_ != key) {
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
    handle({now_, ConnectionOpened{id}});
    transmit(id, kToIsland, [&self] { self.receive({0, CoordinatorReached{}}); });
  });
}

// Both ends are told what the other did in the order of what was sent before.
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
    handle({now_, ConnectionClosed{closed, "closed by the island"}});
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
        return fmt::format("{:9.4f} island {}: {}", now_, island + 1, describe(message));
      });
    }
    handle({now_, ConnectionReceived{id, message}});
  });
}

void Simulator::transmit(ConnectionId id, Direction direction, std::function<void()> what) {
  Link& link = links_.at(id);
  Seconds& last = link.last[direction];
  last = std::max(last, now_ + options_.link.latency * (1 + 0.5 * uniform()));
  schedule(last - now_,
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
  if (was_open_here) handle({now_, ConnectionClosed{id, "nothing comes through"}});
  if (was_open_there) islands_[index]->receive({0, CoordinatorLost{"nothing comes through"}});
}

// ---- faults ----

void Simulator::add_island() {
  const int index = static_cast<int>(islands_.size());
  const auto place = static_cast<std::size_t>(index);
  const double speed = place < options_.speeds.size() ? options_.speeds[place] : 1;
  islands_.push_back(std::make_unique<SimulatedIsland>(*this, index, speed));
  connection_of_.push_back(kNoConnection);
  cuts_.push_back({});
  isolated_.push_back(0);
  islands_.back()->start();
  if (options_.mtbf > 0) crash_sometimes(index);
}

void Simulator::crash_sometimes(int island) {
  const Seconds wait = -std::log(1 - uniform()) * options_.mtbf;
  schedule(wait, [this, island] {
    begin({.kind = Kind::kCrash, .lasts = options_.restart_after, .island = island});
    crash_sometimes(island);
  });
}

void Simulator::add(const SimulatedFault& fault) {
  schedule(fault.when - now_, [this, fault] { begin(fault); });
}

void Simulator::begin_at_coordinator(const SimulatedFault& fault) {
  if (fault.kind == Kind::kKillCoordinator) return kill_coordinator(fault.lasts);
  if (fault.kind == Kind::kKillCoordinatorMidway) {
    dies_midway_ = true;
    down_for_ = fault.lasts;
    return;
  }
  ++coordinator_stops_;
  schedule(fault.lasts, [this] {
    --coordinator_stops_;
    while (coordinator_stops_ == 0 && !waiting_.empty()) {
      const CoordinatorEvent event = std::move(waiting_.front());
      waiting_.pop_front();
      handle(event);
    }
  });
}

void Simulator::begin(const SimulatedFault& fault) {
  trace([&] {
    return fmt::format("{:9.4f} fault {} of island {} for {:.2f} s", now_,
                       static_cast<int>(fault.kind), fault.island + 1, fault.lasts);
  });
  if (fault.kind == Kind::kJoin) return add_island();
  const bool is_coordinators = fault.kind == Kind::kKillCoordinator ||
                               fault.kind == Kind::kKillCoordinatorMidway ||
                               fault.kind == Kind::kStopCoordinator;
  if (is_coordinators) return begin_at_coordinator(fault);
  const auto index = static_cast<std::size_t>(fault.island);
  SimulatedIsland& island = *islands_[index];
  const auto afterwards = [&](std::function<void()> what) {
    schedule(fault.lasts, std::move(what));
  };
  switch (fault.kind) {
    case Kind::kCrash:
    case Kind::kSilentCrash:
      if (!island.is_up()) return;
      ++num_crashes_;
      island.crash();
      disconnect(fault.island, fault.kind == Kind::kSilentCrash);
      return afterwards([&island] { island.start(); });
    case Kind::kStop:
      island.stop(true);
      return afterwards([&island] { island.stop(false); });
    case Kind::kCut:
    case Kind::kCutToCoordinator:
    case Kind::kCutFromCoordinator: {
      const bool to = fault.kind != Kind::kCutFromCoordinator;
      const bool from = fault.kind != Kind::kCutToCoordinator;
      const int alone = fault.kind == Kind::kCut ? 1 : 0;
      isolated_[index] += alone;
      if (to) cut(fault.island, kToCoordinator, 1);
      if (from) cut(fault.island, kToIsland, 1);
      return afterwards([this, to, from, alone, index] {
        isolated_[index] -= alone;
        if (to) cut(static_cast<int>(index), kToCoordinator, -1);
        if (from) cut(static_cast<int>(index), kToIsland, -1);
      });
    }
    case Kind::kCutPair: {
      const std::pair pair = {std::min(fault.island, fault.other),
                              std::max(fault.island, fault.other)};
      ++pair_cuts_[pair];
      return afterwards([this, pair] { --pair_cuts_[pair]; });
    }
    case Kind::kFlipResult:
      return island.flip_results(1);
    case Kind::kAlwaysFlips:
      return island.flip_results(1 << 30);
    case Kind::kNotFinite:
      return island.spoil_norm(-1);
    case Kind::kHugeNorm:
      return island.spoil_norm(1e6);
    case Kind::kLeave:
      return island.leave();
    case Kind::kSlow:
      island.slow_down(0.25);
      return afterwards([&island] { island.slow_down(4); });
    default:
      return;
  }
}

}  // namespace atl::island
