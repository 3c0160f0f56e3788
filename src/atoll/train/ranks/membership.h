#pragma once

#include <memory>

#include "atoll/comm/world.h"

namespace atl::train {

/// The side of a rank in a run whose ranks may come and go: the starter of ranks answers these
/// calls.
class Membership {
 public:
  virtual ~Membership() = default;

  /// Whether this rank is new to a run that others are training already. It then prepares all that
  /// needs no others before it asks for its world.
  virtual bool joins() const = 0;
  /// The next world that this rank is in: at first, and again after the one before was given back,
  /// because a rank was lost or others are wanted. Those that stay keep their order; who joins
  /// comes after them. Throws Error(kPeer) when there is none in time, or this rank is not wanted
  /// any more.
  virtual std::unique_ptr<comm::World> next() = 0;
  /// Whether the set of ranks is to change. The lead asks after each step.
  virtual bool wants_change() = 0;
};

}  // namespace atl::train
