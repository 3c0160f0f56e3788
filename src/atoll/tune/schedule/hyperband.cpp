#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/tune/schedule/schedulers.h"

namespace atl::tune {

std::vector<Hyperband::Bracket> Hyperband::brackets() const {
  const std::vector<std::int64_t> rungs =
      rung_steps(rules().min_steps, rules().max_steps, rules().eta);
  const auto most = static_cast<int>(rungs.size()) - 1;  // s_max
  std::vector<Bracket> all;
  for (int s = most; s >= 0; --s) {
    const double size =
        std::ceil((most + 1) * std::pow(static_cast<double>(rules().eta), s) / (s + 1));
    all.push_back({static_cast<int>(size), {rungs.begin() + (most - s), rungs.end()}});
  }
  return all;
}

std::vector<Move> Hyperband::next(const ScheduleView& view) const {
  const std::vector<Bracket> kinds = brackets();
  std::map<int, std::vector<const Trial*>> by_bracket;
  for (const Trial& trial : view.trials) by_bracket[trial.bracket].push_back(&trial);
  for (const auto& [number, trials] : by_bracket) {
    const Bracket& bracket = kinds[static_cast<std::size_t>(number) % kinds.size()];
    const bool is_full = static_cast<int>(trials.size()) >= bracket.size || !view.has_room;
    if (!is_full) continue;
    std::vector<const Trial*> field = trials;
    for (std::size_t rung = 0; rung + 1 < bracket.rungs.size(); ++rung) {
      const std::int64_t step = bracket.rungs[rung];
      const bool all_here = std::all_of(field.begin(), field.end(), [&](const Trial* trial) {
        return ScheduleView::has_come(*trial, step);
      });
      if (!all_here) break;
      std::stable_sort(field.begin(), field.end(), [&](const Trial* a, const Trial* b) {
        return view.value(*a, step) < view.value(*b, step);
      });
      const std::size_t keep = field.size() / static_cast<std::size_t>(rules().eta);
      field.resize(std::max<std::size_t>(keep, 1));
      std::vector<Move> moves;
      for (const Trial* trial : field) {
        if (trial->is_over() || trial->target > step) continue;
        moves.push_back(
            {.kind = Move::Kind::kGoOn, .trial = trial->number, .step = bracket.rungs[rung + 1]});
      }
      if (!moves.empty()) return moves;
    }
  }
  if (!view.has_room) return {};
  for (int number = 0;; ++number) {
    const Bracket& bracket = kinds[static_cast<std::size_t>(number) % kinds.size()];
    const auto found = by_bracket.find(number);
    const std::size_t size = found == by_bracket.end() ? 0 : found->second.size();
    if (size >= static_cast<std::size_t>(bracket.size)) continue;
    return {{.kind = Move::Kind::kNew, .step = bracket.rungs.front(), .bracket = number}};
  }
}

}  // namespace atl::tune
