#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/schedule/rank_schedule.h"

namespace atl::parallel {

/// Where the tensor is that an action moves.
using TensorOf = std::function<Tensor(const Action&)>;

/// Carries out the transfers of a rank's list beside its passes: each begins and ends when the list
/// says.
class Transfers {
 public:
  /// Of no list.
  Transfers() = default;
  explicit Transfers(const RankSchedule& schedule);

  /// Before the first walk, unless the list has no transfer.
  void connect(comm::Group& pipeline) { pipeline_ = &pipeline; }

  /// A walk through the list begins: of all actions, or of the first micro-batch's forward pass.
  void begin_walk(bool all);
  /// Before the action of `tick`: ends the sends whose memory is used again, begins what moves
  /// beside it. With the length of the list: ends them all. Throws PeerError.
  void advance(std::int64_t tick, const TensorOf& tensor_of);
  /// Returns when the receive of this tick has ended; nothing for a send. Throws PeerError.
  void act(std::int64_t tick);

  /// After a walk that failed: tells the other ranks, so that what is under way ends, and waits for
  /// that.
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

  std::vector<Moving> moving_;           // in the order in which they begin
  std::vector<std::size_t> sends_;       // of these, in the order in which they end
  std::vector<std::ptrdiff_t> at_tick_;  // of these, by action; -1: none
  comm::Group* pipeline_ = nullptr;
  bool all_ = true;
  std::size_t next_begin_ = 0, next_send_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace atl::parallel
