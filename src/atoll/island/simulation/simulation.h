#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// A link from an island to everybody else.
struct SimulatedLink {
  double bits_per_second = 0;  ///< each way; 0: as fast as can be
  Seconds latency = 0.02;      ///< one way
  Seconds queue = 0;           ///< that messages wait while something is transferred
};

/// A fault.
struct SimulatedFault {
  enum class Kind {
    kCrash,             ///< the process dies; it starts again from its checkpoint
    kSilentCrash,       ///< the machine dies: nobody is told
    kStop,              ///< SIGSTOP
    kCut,               ///< nothing reaches anybody, from it or to it
    kCutToCoordinator,  ///< only what it says to the coordinator
    kCutFromCoordinator,
    kCutPair,                ///< only between it and `other`
    kKillCoordinator,        ///< while it does nothing
    kKillCoordinatorMidway,  ///< some of what the next event leads to is done, some is not
    kStopCoordinator,
    kFlipResult,   ///< the next result that it computes is wrong
    kAlwaysFlips,  ///< and all others too
    kNotFinite,    ///< its next pseudo-gradient is
    kHugeNorm,     ///< its next pseudo-gradient has
    kJoin,         ///< one more island comes, for good
    kLeave,        ///< SIGTERM, for good
    kSlow,         ///< it computes at a quarter of its speed
    kRestart,      ///< SIGTERM, and it is started again
  };
  Kind kind = Kind::kCrash;
  Seconds when = 0;
  Seconds lasts = 0;  ///< until it is repaired, where it can be
  int island = 0;     ///< from 0
  int other = 0;
};

/// How far a simulation is.
struct SimulationProgress {
  Seconds seconds = 0;       ///< of virtual time
  std::int64_t commits = 0;  ///< outer steps
  std::int64_t batches = 0;  ///< committed, of all
  std::int64_t events = 0;   ///< messages, timers and faults so far
};

/// A run to be simulated.
struct SimulationOptions {
  int num_islands = 4;
  RunPlan plan;
  SimulatedLink link;
  double parameters = 0;           ///< of the model
  double bytes_per_parameter = 4;  ///< of a pseudo-gradient; state is f32: anchor and momentum
  Seconds step_seconds = 0.05;     ///< of an inner step, at speed 1
  double jitter = 0.1;             ///< of that, relative
  /// Links that change: that of an island (from 0) at a time. Empty: always `link`.
  std::function<SimulatedLink(Seconds now, int island)> link_at;
  /// An inner step gains 1 / (1 + stale_cost * H^(1/4)) of what it gains at H = 0, and somewhat
  /// less where it overlaps with an exchange or the codec is coarse: the truth that policies guess
  /// at.
  double stale_cost = 0.12;
  double target_progress = 0;  ///< inner steps at H = 0, of all islands: when was it there?
  int liar = -1;               ///< this island (from 0) measures `lie` of everything; -1: none
  double lie = 0;
  std::vector<double> speeds;  ///< by island; missing ones are 1
  std::int64_t overlap = 0;    ///< inner steps from an outer step's begin to its end
  bool can_rebase = true;      ///< see MemberOptions
  int checkpoint_every = 1;    ///< outer steps
  Seconds save_seconds = 10;   ///< that an island takes to save the final model, at most
  Seconds mtbf = 0;            ///< of each island: mean time between crashes; 0: none
  Seconds restart_after = 2;   ///< of a crash, for mtbf
  std::vector<SimulatedFault> faults;
  Seconds heartbeat_every = 0.5;
  Seconds out_after = 30;            ///< see CoordinatorOptions
  Seconds void_after = 30;           ///< see CoordinatorOptions
  Seconds max_seconds = 600;         ///< when it is given up
  std::int64_t max_outer_steps = 0;  ///< ends earlier, as if it were done; 0: never
  /// As its process does, once nobody is expected any more: who comes then is left behind.
  bool coordinator_ends = false;
  bool measures_cpu = false;
  std::function<void(const std::string&)> trace;  ///< told of every message, record and fault
  /// Told how far it is every thousand events, which are milliseconds of real time.
  std::function<void(const SimulationProgress&)> progress;
};

/// The result of a simulation.
struct SimulationReport {
  std::uint64_t seed = 0;
  bool is_finished = false;
  Seconds seconds = 0;         ///< of virtual time, until the last island heard of the run's end
  double utilisation = 0;      ///< share of island-seconds that computed
  double goodput = 0;          ///< share of island-seconds whose batches were committed
  double bytes = 0;            ///< sent by all islands: pseudo-gradients, sums and state
  std::int64_t commits = 0;    ///< including those that became void
  std::int64_t aborts = 0;     ///< attempts that came to nothing
  std::int64_t voids = 0;      ///< outer steps that became void
  std::int64_t batches = 0;    ///< committed
  std::int64_t evictions = 0;  ///< islands turned out for wrong states
  std::int64_t crashes = 0;
  std::int64_t messages = 0;
  double coordinator_cpu = 0;     ///< seconds of real CPU time; where it was measured
  Seconds longest_pause = 0;      ///< between two commits
  Seconds seconds_to_target = 0;  ///< until target_progress; 0: it was not reached
  double progress = 0;            ///< as target_progress counts it
  std::int64_t schedule_changes = 0;
  RoundSchedule schedule;  ///< of the last outer step
  /// Of each outer step with a prediction: how far its exchange was from it, relative.
  std::vector<double> prediction_errors;
  std::string halted;  ///< why the run cannot go on, or ""
  /// What must never happen and did, each one line; empty if all is well.
  std::vector<std::string> violations;
};

/// Runs the state machines of a coordinator and its islands (Coordinator, Member) on a virtual
/// clock and network, with the faults asked for; the same seed gives the same run.
SimulationReport simulate(const SimulationOptions& options, std::uint64_t seed);

/// A small run with random faults of all kinds, and all of them repaired in the end: it must
/// finish. For tests by the thousand.
SimulationOptions random_simulation(std::uint64_t seed);
/// The same with islands that wait for each other, by a schedule that never changes.
SimulationOptions random_fixed_simulation(std::uint64_t seed);

}  // namespace atl::island
