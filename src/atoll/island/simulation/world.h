#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "atoll/island/protocol/protocol.h"
#include "atoll/island/simulation/audit.h"
#include "atoll/island/simulation/simulation.h"

namespace atl::island {

class SimulatedIsland;

/// What an island of a simulated run finds around it: a clock, dice, the network and the others.
class SimulatedWorld {
 public:
  virtual ~SimulatedWorld() = default;

  virtual Seconds now() const = 0;
  virtual const SimulationOptions& options() const = 0;
  virtual SimulationAudit& audit() = 0;
  virtual bool is_finished() const = 0;

  virtual void schedule(Seconds after, std::function<void()> what) = 0;
  virtual double uniform() = 0;
  /// Seconds for `bytes` on the slowest of these islands' links, there and back.
  virtual Seconds transfer(double bytes, const std::vector<int>& islands) = 0;
  /// Of a batch trained now, as far as a simulation has one.
  virtual double loss() const = 0;
  virtual double learning_rate() const = 0;
  virtual void count_bytes(double bytes) = 0;
  /// An island has heard of the end of the run.
  virtual void note_end() = 0;
  virtual void connect(int island, std::uint64_t life, Seconds after) = 0;
  virtual void disconnect(int island, bool is_silent) = 0;
  virtual void send(int island, const MessageFromIsland& message) = 0;
  /// The island's link is used for so long: what it says and hears waits in the link's queue.
  virtual void occupy(int island, Seconds duration) = 0;
  /// Whether one island can fetch from another now.
  virtual bool reaches(int from, IslandId to, bool is_star) const = 0;
  /// One copy for all islands.
  virtual std::shared_ptr<const Reduce> share(const Stamp& stamp, const Reduce& reduce) = 0;
  virtual SimulatedIsland* island_of(IslandId id) const = 0;
};

}  // namespace atl::island
