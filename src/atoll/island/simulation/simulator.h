#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "atoll/base/event_queue.h"
#include "atoll/base/rng.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/simulation/audit.h"
#include "atoll/island/simulation/island.h"
#include "atoll/island/simulation/simulation.h"
#include "atoll/island/simulation/world.h"

namespace atl::island {

/// A simulated run while it goes: a queue of what happens when, the network between a coordinator
/// and its islands, and the faults. A connection keeps its order and loses nothing until it is
/// closed; what two connections carry is not ordered. See simulate().
class Simulator final : public SimulatedWorld {
 public:
  Simulator(const SimulationOptions& options, std::uint64_t seed);
  ~Simulator() override;
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  /// Goes on until the run and all its islands have ended, or until then.
  void run(Seconds until);
  /// Adds a fault to those of the options; its time must not be past.
  void add(const SimulatedFault& fault);
  SimulationReport report();

  Seconds now() const override { return events_.now(); }
  const SimulationOptions& options() const override { return options_; }
  SimulationAudit& audit() override { return audit_; }
  SimulatedIsland& island(int index) { return *islands_[static_cast<std::size_t>(index)]; }
  /// Null while it is down.
  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }
  const std::vector<LogRecord>& log() const { return log_; }
  bool is_finished() const override { return is_finished_; }

  void schedule(Seconds after, std::function<void()> what) override;
  double uniform() override;
  Seconds transfer(double bytes, const std::vector<int>& islands) override;
  double loss() const override;
  double learning_rate() const override;
  void count_bytes(double bytes) override { bytes_ += bytes; }
  void note_end() override { ended_at_ = now(); }
  void connect(int island, std::uint64_t life, Seconds after) override;
  void disconnect(int island, bool is_silent) override;
  void send(int island, const MessageFromIsland& message) override;
  void occupy(int island, Seconds duration) override;
  bool reaches(int from, IslandId to, bool is_star) const override;
  std::shared_ptr<const Reduce> share(const Stamp& stamp, const Reduce& reduce) override;
  SimulatedIsland* island_of(IslandId id) const override;
  /// Adds a line to the trace, if there is one.
  template <typename Tell>
  void trace(const Tell& tell) {
    if (options_.trace) options_.trace(tell());
  }
  void named(IslandId id, int index) { by_id_[id] = index; }

 private:
  enum Direction { kToCoordinator = 0, kToIsland = 1 };
  struct Link {  // a connection
    int island = 0;
    bool is_open_there = true;  // at the island
    bool is_open_here = true;   // at the coordinator
    Seconds last[2] = {};
    std::deque<std::function<void()>> held[2];
  };
  void start_coordinator();
  void kill_coordinator(Seconds for_how_long);
  void end_coordinator();
  void tick(std::uint64_t life);
  void handle(const CoordinatorEvent& event);
  void perform(const CoordinatorAction& action);
  void expect_lost();
  void transmit(ConnectionId id, Direction direction, std::function<void()> what);
  void deliver(ConnectionId id, Direction direction, std::function<void()> what);
  void close_at_coordinator(ConnectionId id);
  void release(ConnectionId id, Direction direction);
  void cut(int island, Direction direction, int sign);
  void break_if_still_cut(int island, ConnectionId id);
  void begin(const SimulatedFault& fault);
  void begin_at_coordinator(const SimulatedFault& fault);
  void crash_sometimes(int island);
  void add_island();

  SimulationOptions options_;
  std::uint64_t seed_;
  RngStream rng_;
  std::uint64_t num_drawn_ = 0;
  std::int64_t num_events_ = 0;
  EventQueue events_;
  SimulationAudit audit_;

  std::optional<Coordinator> coordinator_;
  std::vector<LogRecord> log_;
  std::uint64_t fence_ = 0;
  std::uint64_t life_ = 0;  // of the coordinator
  bool dies_midway_ = false;
  Seconds down_for_ = 0;
  int coordinator_stops_ = 0;
  std::deque<CoordinatorEvent> waiting_;  // while it is stopped
  double cpu_ = 0;

  std::vector<std::unique_ptr<SimulatedIsland>> islands_;
  std::map<IslandId, int> by_id_;
  std::map<ConnectionId, Link> links_;
  ConnectionId next_connection_ = 1;
  std::vector<ConnectionId> connection_of_;  // by island
  std::vector<std::array<int, 2>> cuts_;     // by island and direction
  std::vector<Seconds> busy_until_;          // by island: its link
  std::vector<int> isolated_;                // by island: from other islands
  std::map<std::pair<int, int>, int> pair_cuts_;
  Stamp shared_stamp_;
  std::shared_ptr<const Reduce> shared_;
  void note_progress(const LogCommit& commit);

  double bytes_ = 0;
  std::optional<LogReduce> reduce_;  // the newest
  RoundSchedule used_;               // of the outer step under way
  double progress_ = 0;
  Seconds target_at_ = 0;
  std::int64_t num_changes_ = 0;
  std::vector<double> prediction_errors_;
  std::int64_t num_messages_ = 0;
  std::int64_t num_crashes_ = 0;
  bool is_finished_ = false;
  Seconds ended_at_ = 0;  // when the last island heard of it
  std::string halted_;
};

}  // namespace atl::island
