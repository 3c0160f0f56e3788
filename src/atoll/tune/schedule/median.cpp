#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "atoll/tune/schedule/schedulers.h"

namespace atl::tune {

namespace {

constexpr std::size_t kFewest = 4;  // a median of fewer says little

}  // namespace

std::vector<Move> NoScheduler::next(const ScheduleView& view) const {
  if (!view.has_room) return {};
  return {{.kind = Move::Kind::kNew, .step = rules().max_steps}};
}

std::vector<Move> MedianStop::next(const ScheduleView& view) const {
  if (!view.has_room) return {};
  return {{.kind = Move::Kind::kNew, .step = std::min(rules().every, rules().max_steps)}};
}

std::vector<Move> MedianStop::judge(const ScheduleView& view, const Trial& trial) const {
  const std::int64_t step = trial.reached();
  const Move on = {.kind = Move::Kind::kGoOn,
                   .trial = trial.number,
                   .step = std::min(step + rules().every, rules().max_steps)};
  if (step < rules().min_steps) return {on};
  double best = std::numeric_limits<double>::infinity();
  for (const Measurement& m : trial.measured) best = std::min(best, view.value(trial, m.step));
  std::vector<double> averages;
  for (const Trial& other : view.trials) {
    if (other.number == trial.number || other.at(step) == nullptr) continue;
    double sum = 0;
    int count = 0;
    for (const Measurement& m : other.measured) {
      if (m.step > step) break;
      sum += view.value(other, m.step);
      ++count;
    }
    averages.push_back(sum / count);
  }
  if (averages.size() < kFewest) return {on};
  std::sort(averages.begin(), averages.end());
  const std::size_t middle = averages.size() / 2;
  const double median =
      averages.size() % 2 == 1 ? averages[middle] : 0.5 * (averages[middle - 1] + averages[middle]);
  if (!(best > median)) return {on};
  return {{.kind = Move::Kind::kStop,
           .trial = trial.number,
           .why = fmt::format("worse than the median of {} at step {}", averages.size(), step)}};
}

}  // namespace atl::tune
