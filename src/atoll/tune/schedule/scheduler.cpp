#include "atoll/tune/schedule/scheduler.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::tune {

const char* name_of(End end) {
  constexpr const char* kNames[] = {"", "finished", "stopped", "diverged", "refused"};
  return kNames[static_cast<int>(end)];
}

const Measurement* Trial::at(std::int64_t step) const {
  const auto found = std::find_if(measured.begin(), measured.end(),
                                  [&](const Measurement& m) { return m.step == step; });
  return found == measured.end() ? nullptr : &*found;
}

std::vector<std::int64_t> rung_steps(std::int64_t min_steps, std::int64_t max_steps,
                                     std::int64_t eta) {
  ATOLL_CHECK(min_steps > 0 && eta > 1, "rungs from {} by {}", min_steps, eta);
  std::vector<std::int64_t> steps;
  for (std::int64_t step = min_steps; step < max_steps; step *= eta) steps.push_back(step);
  steps.push_back(max_steps);
  return steps;
}

}  // namespace atl::tune
