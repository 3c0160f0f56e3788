#pragma once

// Whether a run is asked to stop, or to save, and that all its ranks know it.

#include <cstdint>
#include <vector>

#include "atoll/train/progress/interrupt.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// A signal that asks the run to stop, sent to any of its ranks. Signals are caught while this
/// lives (InterruptGuard).
class StopRequest {
 public:
  /// `is_told`: this rank prints what a signal leads to, the moment it comes.
  explicit StopRequest(bool is_told);
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

  /// Whether a signal has asked this rank to save and go on (save_at_usr1), since the last
  /// take_save().
  bool wants_save_here() const { return num_save_requests() > num_saves_; }
  /// Whether any rank was asked so, as all know: once.
  bool take_save(const Ranks& ranks);

 private:
  InterruptGuard guard_;
  int agreed_ = 0;
  std::int64_t num_saves_ = num_save_requests();
  bool agreed_save_ = false;
};

}  // namespace atl::train
