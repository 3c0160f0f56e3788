#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// How long silence may last before an island is suspected.
struct SuspicionLimits {
  /// Never longer, where heartbeats are not held back: with the coordinator's tick, below three
  /// seconds.
  Seconds cap = 2.5;
  double num_mads = 12;       ///< median absolute deviations above the median
  Seconds usual_delay = 0.5;  ///< heartbeats may be late by this much
  double per_delay = 2;  ///< added for each second more: what is lost there comes twice as late
  Seconds longest_delay = 15;  ///< more is not allowed for
  /// Others may vouch for it, who hear from it, until it has said nothing itself for so long.
  Seconds longest_vouched = 60;
  int most_wronged = 6;  ///< times that it is given more for having been wronged
};

/// Learns how often one island is heard from, and says when it has been silent for too long:
/// median + k * MAD of the recent intervals of its heartbeats, where the MAD is taken for a quarter
/// of the median at least, because a machine that has been regular until now may still be late
/// once.
///
/// A heartbeat says when it was sent. Behind an exchange on a slow link, or anything else that
/// fills a link's queue, heartbeats come later than others did, one by one: such a link is given
/// more time, until it has been without delays for long. What was held back by a stop or a
/// partition comes all at once, and earns nothing.
class Suspicion {
 public:
  /// `held_back`: as learned on an earlier connection of the same island.
  explicit Suspicion(const SuspicionLimits& limits, Seconds now, Seconds held_back = 0);

  /// It was heard.
  void heard(Seconds now);
  /// Its heartbeat was, sent at `sent` by its own clock.
  void heard(Seconds now, Seconds sent);
  /// Somebody else has heard from it, at `when`.
  void vouched_for(Seconds when);
  /// It was suspected, and was alive. It is given half as long again for each time: what comes all
  /// at once, after others have gone on without it, may be a link's habit too.
  void wronged();
  /// It has taken part: takes one time back.
  void trust() { num_wronged_ = std::max(0, num_wronged_ - 1); }
  /// The longest silence that is not suspicious.
  Seconds patience() const;
  bool is_silent(Seconds now) const { return now - last_heard_ > patience(); }
  Seconds last_heard() const { return last_heard_; }
  /// How late its newest heartbeat was.
  Seconds late() const { return newest_ ? newest_->late : 0; }
  /// How late heartbeats have come because they were held back.
  Seconds held_back() const { return held_back_; }

 private:
  static constexpr std::size_t kRemembered = 16;

  struct Beat {
    Seconds came = 0;
    Seconds sent = 0;
    Seconds late = 0;
  };

  void learn_interval(Seconds interval);
  Seconds lateness(Seconds now, Seconds sent);

  SuspicionLimits limits_;
  Seconds last_heard_;  // by itself, or others
  Seconds last_said_;   // by itself
  Seconds patience_;    // without what is held back
  std::array<Seconds, kRemembered> intervals_ = {};
  std::size_t num_heard_ = 0;
  std::optional<Beat> newest_;
  Seconds held_back_ = 0;
  int num_wronged_ = 0;
  // The shortest way from its clock to here, lately and before that: clocks drift.
  std::array<std::optional<Seconds>, 2> shortest_ = {};
  Seconds shortest_from_ = 0;
};

}  // namespace atl::island
