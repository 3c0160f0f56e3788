#pragma once

// The bandit that chooses settings for members of a population that take over (Parker-Holder et al.
// 2020, arXiv:2002.02518, "PB2").

#include <cstdint>
#include <vector>

#include "atoll/tune/schedule/scheduler.h"

namespace atl::tune {

/// A member that takes over at `step`.
struct Takeover {
  const Trial& donor;
  std::int64_t step = 0;
  std::uint64_t number = 0;     ///< of the new trial, which names its draws
  std::vector<Units> together;  ///< what the other members train with until the next exchange
};

/// Settings for it: where a Gaussian process expects the next interval to help most, or knows
/// least (a lower confidence bound of one standard deviation). The process is of the change of the
/// objective over an interval, by settings, time, and the value that the interval began with; each
/// interval's changes are standardised among its members, for they shrink as training goes on.
/// What the others train with counts as under way. Before two intervals' worth of members have
/// shown something, `explore` by chance. The kernel is Matérn-5/2 with a fitted length scale for
/// time, where the paper has a squared exponential that forgets at a fixed rate.
Units explore_by_bandit(const Space& space, const ScheduleView& view, const Rules& rules,
                        double resample, const Takeover& takeover);

}  // namespace atl::tune
