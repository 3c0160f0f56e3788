#include "atoll/train/progress/held_out_history.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"

namespace atl::train {

namespace {

constexpr std::size_t kFixed = 4;
constexpr std::size_t kNumbers = kFixed + 2 * static_cast<std::size_t>(HeldOutHistory::kMost);

}  // namespace

void HeldOutHistory::take(std::int64_t step, double loss, std::int64_t keep, double min_delta) {
  if (step <= last_step) return;
  last_step = step;
  if (!std::isfinite(loss)) {
    ++since_lowest;
    return;
  }
  if (loss < lowest - min_delta) {
    lowest = loss;
    since_lowest = 0;
  } else {
    ++since_lowest;
  }
  best.push_back({step, loss});
  std::stable_sort(best.begin(), best.end(),
                   [](const Best& a, const Best& b) { return a.loss < b.loss; });
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(keep, 0, kMost));
  if (best.size() > most) best.resize(most);
}

bool HeldOutHistory::is_best(std::int64_t step) const {
  return std::any_of(best.begin(), best.end(), [&](const Best& one) { return one.step == step; });
}

std::set<std::int64_t> HeldOutHistory::best_steps() const {
  std::set<std::int64_t> steps;
  for (const Best& one : best) steps.insert(one.step);
  return steps;
}

std::vector<double> HeldOutHistory::to_numbers() const {
  std::vector<double> numbers = {static_cast<double>(last_step), lowest,
                                 static_cast<double>(since_lowest),
                                 static_cast<double>(best.size())};
  for (const Best& one : best) {
    numbers.push_back(static_cast<double>(one.step));
    numbers.push_back(one.loss);
  }
  numbers.resize(kNumbers);
  return numbers;
}

HeldOutHistory HeldOutHistory::from_numbers(const std::vector<double>& numbers) {
  ATOLL_CHECK(numbers.size() == kNumbers, "{}", numbers.size());
  HeldOutHistory history;
  history.last_step = static_cast<std::int64_t>(numbers[0]);
  history.lowest = numbers[1];
  history.since_lowest = static_cast<std::int64_t>(numbers[2]);
  const auto count = static_cast<std::size_t>(numbers[3]);
  for (std::size_t i = 0; i < count; ++i) {
    history.best.push_back(
        {static_cast<std::int64_t>(numbers[kFixed + 2 * i]), numbers[kFixed + 2 * i + 1]});
  }
  return history;
}

}  // namespace atl::train
