#pragma once

#include <array>
#include <cstddef>

#include "atoll/island/protocol.h"

namespace atl::island {

/// How long silence may last before an island is suspected.
struct SuspicionLimits {
  Seconds cap = 2.5;     ///< never longer: with the coordinator's tick, below three seconds
  double num_mads = 12;  ///< median absolute deviations above the median
};

/// Learns how often one island is heard from, and says when it has been silent for too long:
/// median + k * MAD of its recent intervals, where the MAD is taken for a quarter of the median at
/// least, because a machine that has been regular until now may still be late once.
class Suspicion {
 public:
  explicit Suspicion(const SuspicionLimits& limits, Seconds now);

  /// It was heard. Intervals below a millisecond say nothing about its habits and are not learned.
  void heard(Seconds now);
  /// The longest silence that is not suspicious.
  Seconds patience() const { return patience_; }
  bool is_silent(Seconds now) const { return now - last_heard_ > patience_; }
  Seconds last_heard() const { return last_heard_; }

 private:
  static constexpr std::size_t kRemembered = 16;

  SuspicionLimits limits_;
  Seconds last_heard_;
  Seconds patience_;
  std::array<Seconds, kRemembered> intervals_ = {};
  std::size_t num_heard_ = 0;
};

}  // namespace atl::island
