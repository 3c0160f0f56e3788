#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

// The trial that is member `member` now: the last one.
std::vector<const Trial*> members_of(const ScheduleView& view, int population) {
  std::vector<const Trial*> members(static_cast<std::size_t>(population));
  for (const Trial& trial : view.trials) {
    if (trial.member >= 0) members[static_cast<std::size_t>(trial.member)] = &trial;
  }
  return members;
}

// Draws of the exchange at this step.
Draws draws_at(const Rules& rules, std::int64_t step) {
  return {rules.seed, DrawFor::kExploit, static_cast<std::uint64_t>(step)};
}

}  // namespace

std::vector<Move> Pbt::next(const ScheduleView& view) const {
  const std::int64_t first = std::min(rules().interval, rules().max_steps);
  std::vector<const Trial*> members = members_of(view, rules().population);
  for (int i = 0; i < rules().population; ++i) {
    if (members[static_cast<std::size_t>(i)] != nullptr) continue;
    return {{.kind = Move::Kind::kNew, .step = first, .member = i}};
  }
  // All must have come to the end of the interval that the slowest is in.
  std::int64_t step = 0;
  for (const Trial* trial : members) step = std::max(step, trial->target);
  for (const Trial* trial : members) {
    if (!ScheduleView::has_come(*trial, step)) return {};
  }
  const std::size_t count = members.size();
  if (step >= rules().max_steps) return {};

  Draws draws = draws_at(rules(), step);
  std::vector<std::pair<double, const Trial*>> ties;
  for (const Trial* trial : members) ties.emplace_back(draws.uniform(), trial);
  std::sort(ties.begin(), ties.end(), [&](const auto& a, const auto& b) {
    const double x = view.value(*a.second, step), y = view.value(*b.second, step);
    return x != y ? x < y : a.first < b.first;
  });
  const std::size_t quantile = std::min<std::size_t>(
      static_cast<std::size_t>(std::ceil(rules().quantile * static_cast<double>(count))),
      count / 2);
  std::size_t healthy = 0;  // among the best
  while (healthy < quantile && !ties[healthy].second->has_failed()) ++healthy;

  std::vector<Move> moves;
  const std::int64_t target = std::min(step + rules().interval, rules().max_steps);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const Trial& trial = *ties[rank].second;
    const bool takes_over = rank + quantile >= count || trial.has_failed();
    if (takes_over && healthy > 0) {
      const Trial& donor = *ties[draws.below(healthy)].second;
      if (!trial.is_over()) {
        moves.push_back({.kind = Move::Kind::kStop,
                         .trial = trial.number,
                         .why = fmt::format("member {} goes on from trial {} at step {}",
                                            trial.member, donor.number, step)});
      }
      moves.push_back({.kind = Move::Kind::kFork,
                       .trial = donor.number,
                       .step = target,
                       .member = trial.member,
                       .from = step});
    } else if (!trial.is_over()) {
      moves.push_back({.kind = Move::Kind::kGoOn, .trial = trial.number, .step = target});
    }
  }
  return moves;
}

Units explore(const Space& space, const Units& from, double resample, std::uint64_t seed,
              std::uint64_t number) {
  Draws draws(seed, DrawFor::kExplore, number);
  Units units = from;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const Dimension& d = space[i];
    const bool is_new = draws.uniform() < resample;
    const double where = draws.uniform();
    const bool goes_up = draws.uniform() < 0.5;
    if (is_new || d.kind == Dimension::Kind::kCategory) {
      // A word has no neighbour to go to.
      if (is_new) units[i] = d.snap(where);
      continue;
    }
    if (d.kind == Dimension::Kind::kOrdered) {
      const std::size_t index = d.index_of(units[i]);
      const std::size_t last = d.num_values() - 1;
      units[i] = d.unit_of_index(goes_up ? std::min(index + 1, last) : index - (index > 0 ? 1 : 0));
      continue;
    }
    const SettingValue value = d.value(units[i]);
    const auto* integer = std::get_if<std::int64_t>(&value);
    const double number_now =
        integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
    const double moved = number_now * (goes_up ? 1.2 : 0.8);
    units[i] = d.unit_of(moved);
    // An integer that rounds back to itself moves by one step.
    if (integer == nullptr || d.value(units[i]) != value) continue;
    const std::size_t index = d.index_of(units[i]);
    const std::size_t last = d.num_values() - 1;
    units[i] = d.unit_of_index(goes_up ? std::min(index + 1, last) : index - (index > 0 ? 1 : 0));
  }
  return space.canonical(units);
}

}  // namespace atl::tune
