#pragma once

// Whether a run is asked to stop, and that all its ranks know it.

#include <vector>

#include "atoll/train/interrupt.h"
#include "atoll/train/ranks.h"

namespace atl::train {

/// A signal that asks the run to stop, sent to any of its ranks. Signals are caught while this
/// lives (InterruptGuard).
class StopRequest {
 public:
  /// The signal that was sent to this rank, or 0: what the other ranks want to know.
  int here() const { return guard_.signal(); }
  /// The signal that all ranks know of, or 0. A rank that stopped by itself would leave the others
  /// waiting.
  int agreed(const Ranks& ranks) const { return ranks.is_alone() ? here() : agreed_; }
  /// Tells the others what was sent to this rank, now; returns what all know then. Every rank must
  /// call it.
  int agree(const Ranks& ranks);
  /// Takes over what all ranks said after a step.
  void hear(const std::vector<RankFacts>& facts);

 private:
  InterruptGuard guard_;
  int agreed_ = 0;
};

}  // namespace atl::train
