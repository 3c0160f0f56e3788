#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/schedule/rank_schedule.h"

namespace atl::parallel {

/// Returns the tensor that a transfer sends or fills.
using TensorOf = std::function<Tensor(const Action&)>;

/// Carries out the transfers of a rank's list while its passes run. RankSchedule::transfers says
/// when each begins and ends.
class Transfers {
 public:
  /// Without transfers.
  Transfers() = default;
  explicit Transfers(const RankSchedule& schedule);

  /// To be called before the first walk if the list has a transfer. `pipeline` must outlive this.
  void connect(comm::Group& pipeline) { pipeline_ = &pipeline; }

  /// Begins a walk through the list: over all actions, or over the forward passes of the first
  /// micro-batch.
  void begin_walk(bool all);
  /// To be called before the action of `tick`: waits for the sends that end by then, as their
  /// memory is used again, and begins the transfers that run from `tick` on. With the length of the
  /// list it waits for all sends. Throws PeerError.
  void advance(std::int64_t tick, const TensorOf& tensor_of);
  /// Waits for the receive that is the action of `tick`. Does nothing for another action. Throws
  /// PeerError.
  void act(std::int64_t tick);

  /// After a walk that failed: tells the other ranks that this one failed (World::abort), which
  /// ends the transfers under way, and waits until they have ended.
  void abandon(const std::string& why) noexcept;

  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Moving {
    Transfer when;
    Action action;
    comm::Work work;
  };

  bool takes_part(const Action& action) const;
  void begin(Moving& moving, const TensorOf& tensor_of);
  void end(Moving& moving);

  std::vector<Moving> moving_;           // all transfers, in the order in which they begin
  std::vector<std::size_t> sends_;       // sends in moving_, in the order in which they end
  std::vector<std::ptrdiff_t> at_tick_;  // by tick: its transfer in moving_; -1: none
  comm::Group* pipeline_ = nullptr;
  bool all_ = true;
  std::size_t next_begin_ = 0, next_send_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace atl::parallel
