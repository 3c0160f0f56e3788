#pragma once

#include "atoll/tune/schedule/scheduler.h"

namespace atl::tune {

/// Every trial takes all its steps.
class NoScheduler : public Scheduler {
 public:
  using Scheduler::Scheduler;
  std::vector<Move> next(const ScheduleView& view) const override;
};

/// A trial stops at a rung where its best value so far is worse than the median of the averages
/// that the others had there (Golovin et al. 2017, Google Vizier, section 3.2.2).
class MedianStop : public Scheduler {
 public:
  using Scheduler::Scheduler;
  std::vector<Move> next(const ScheduleView& view) const override;
  std::vector<Move> judge(const ScheduleView& view, const Trial& trial) const override;
};

/// Asynchronous successive halving (Li et al. 2018, arXiv:1810.05934): a free worker takes the best
/// trial that is among the first ⌊n/η⌋ of its rung up to the next one, or else begins another.
class Asha : public Scheduler {
 public:
  using Scheduler::Scheduler;
  std::vector<Move> next(const ScheduleView& view) const override;
};

/// Hyperband (Li et al. 2017, arXiv:1603.06560): brackets of successive halving that begin with
/// many short trials, fewer longer ones, ..., some whole ones; again from the first when all are
/// filled. A rung's best go on when all of the rung have come there.
class Hyperband : public Scheduler {
 public:
  using Scheduler::Scheduler;
  std::vector<Move> next(const ScheduleView& view) const override;

  /// Trials that each bracket begins with, and the steps of its rungs.
  struct Bracket {
    int size = 0;
    std::vector<std::int64_t> rungs;
  };
  std::vector<Bracket> brackets() const;
};

/// Population Based Training (Jaderberg et al. 2017, arXiv:1711.09846): after each interval, when
/// all members have taken equally many steps, the worst n take over from members drawn of the best
/// n, n = min(⌈quantile N⌉, ⌊N/2⌋). Equal values are ranked by a draw.
class Pbt : public Scheduler {
 public:
  using Scheduler::Scheduler;
  std::vector<Move> next(const ScheduleView& view) const override;
};

/// What a member that takes over trains with: each setting is drawn anew with the chance
/// `resample`, else multiplied by 1.2 or 0.8 (a list's value: one further), and kept within its
/// bounds.
Units explore(const Space& space, const Units& from, double resample, std::uint64_t seed,
              std::uint64_t number);

}  // namespace atl::tune
