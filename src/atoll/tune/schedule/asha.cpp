#include <algorithm>

#include "atoll/tune/schedule/schedulers.h"

namespace atl::tune {

std::vector<Move> Asha::next(const ScheduleView& view) const {
  const std::vector<std::int64_t> rungs =
      rung_steps(rules().min_steps, rules().max_steps, rules().eta);
  for (std::size_t rung = rungs.size() - 1; rung-- > 0;) {
    // All that have come to this rung, the best first; those that failed before it count.
    std::vector<const Trial*> here;
    for (const Trial& trial : view.trials) {
      if (ScheduleView::has_come(trial, rungs[rung])) here.push_back(&trial);
    }
    std::stable_sort(here.begin(), here.end(), [&](const Trial* a, const Trial* b) {
      return view.value(*a, rungs[rung]) < view.value(*b, rungs[rung]);
    });
    here.resize(here.size() / static_cast<std::size_t>(rules().eta));
    for (const Trial* trial : here) {
      if (trial->is_over() || trial->target > rungs[rung]) continue;
      return {{.kind = Move::Kind::kGoOn, .trial = trial->number, .step = rungs[rung + 1]}};
    }
  }
  if (!view.has_room) return {};
  return {{.kind = Move::Kind::kNew, .step = rungs.front()}};
}

}  // namespace atl::tune
