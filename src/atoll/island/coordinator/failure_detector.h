#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// How long silence may last before an island is suspected.
struct FailureDetectorLimits {
  /// Never longer, where heartbeats are not held back: with the coordinator's tick, below three
  /// seconds.
  Seconds cap = 2.5;
  double num_mads = 12;       ///< median absolute deviations above the median
  Seconds usual_delay = 0.5;  ///< heartbeats may be late by this much
  double per_delay = 2;  ///< added for each second more: what is lost there comes twice as late
  Seconds longest_delay = 15;  ///< more is not allowed for
  /// Reports of other islands that hear from it count until it has been silent itself for so long.
  Seconds longest_heard_by_others = 60;
  int max_false_suspicions = 6;  ///< false suspicions that lengthen the timeout, at most
};

/// A failure detector for one island. It learns the intervals between heartbeats, and suspects the
/// island when it has been silent for longer than timeout():
/// median + k * MAD of the recent intervals of its heartbeats, where the MAD is taken for a quarter
/// of the median at least, because a machine that has been regular until now may still be late
/// once.
///
/// A heartbeat says when it was sent. Behind an exchange on a slow link, or anything else that
/// fills a link's queue, heartbeats come later than others did, one by one: such a link is given
/// more time, until it has been without delays for long. What was held back by a stop or a
/// partition comes all at once, and earns nothing.
class FailureDetector {
 public:
  /// `held_back`: as learned on an earlier connection of the same island.
  explicit FailureDetector(const FailureDetectorLimits& limits, Seconds now, Seconds held_back = 0);

  /// A message of the island came.
  void heard(Seconds now);
  /// A heartbeat of the island came, sent at `sent` by the island's clock.
  void heard(Seconds now, Seconds sent);
  /// Another island has heard from it, at `when`.
  void heard_by_others(Seconds when);
  /// The island was suspected and was alive. Each time makes the timeout half as long again.
  void falsely_suspected();
  /// The island has taken part in an outer step: forgets one false suspicion.
  void trust() { num_false_suspicions_ = std::max(0, num_false_suspicions_ - 1); }
  /// The longest silence that is not suspicious.
  Seconds timeout() const;
  bool is_silent(Seconds now) const { return now - last_heard_ > timeout(); }
  Seconds last_heard() const { return last_heard_; }
  /// How late its newest heartbeat was.
  Seconds late() const { return newest_ ? newest_->late : 0; }
  /// How late heartbeats have come because they were held back.
  Seconds held_back() const { return held_back_; }

 private:
  static constexpr std::size_t kRemembered = 16;

  struct LastHeartbeat {
    Seconds came = 0;
    Seconds sent = 0;
    Seconds late = 0;
  };

  void learn_interval(Seconds interval);
  Seconds lateness(Seconds now, Seconds sent);

  FailureDetectorLimits limits_;
  Seconds last_heard_;  // by itself, or others
  Seconds last_said_;   // by itself
  Seconds timeout_;     // without what is held back
  std::array<Seconds, kRemembered> intervals_ = {};
  std::size_t num_heard_ = 0;
  std::optional<LastHeartbeat> newest_;
  Seconds held_back_ = 0;
  int num_false_suspicions_ = 0;
  // The shortest way from its clock to here, lately and before that: clocks drift.
  std::array<std::optional<Seconds>, 2> shortest_ = {};
  Seconds shortest_from_ = 0;
};

}  // namespace atl::island
