#include "atoll/tune/report/importance.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/tune/search/gp_search.h"

namespace atl::tune {

namespace {

constexpr std::size_t kFewest = 4;
constexpr std::size_t kOuter = 32;   // values of the dimension
constexpr std::size_t kInner = 128;  // points of the others

double variance_of(const std::vector<double>& values) {
  double mean = 0, variance = 0;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) mean += value / count;
  for (const double value : values) variance += (value - mean) * (value - mean) / count;
  return variance;
}

std::vector<Observation> observations(const History& history,
                                      const std::vector<Objective>& objectives) {
  std::map<std::int64_t, std::size_t> counts;
  for (const auto& [trial, step] : history.results()) ++counts[step];
  std::int64_t step = 0;
  std::size_t most = 0;
  for (const auto& [at, count] : counts) {
    if (count < most) continue;
    step = at;
    most = count;
  }
  std::vector<Observation> seen;
  for (const auto& [number, at] : history.results()) {
    if (at != step) continue;
    const Trial& trial = history.trial(number);
    const double value = cost(objectives, 0, trial.at(step)->values.front());
    seen.push_back({number, trial.units, value, ""});
  }
  return seen;
}

}  // namespace

std::vector<double> importance_of(const Space& space, const History& history,
                                  const std::vector<Objective>& objectives, std::uint64_t seed) {
  const std::vector<Observation> seen = observations(history, objectives);
  if (seen.size() < kFewest) return {};
  Observed observed = {.points = {}, .values = standardised(seen)};
  for (const Observation& one : seen) observed.points.push_back(one.units);
  const GaussianProcess process(space, observed, fit_kernel(space, observed, seed));

  const QuasiRandom points(seed, space.size());
  std::vector<Units> inner;
  for (std::size_t i = 0; i < kInner; ++i) inner.push_back(points.point(i));
  const auto means_at = [&](const std::vector<Units>& at) {
    std::vector<Units> canonical;
    for (const Units& units : at) canonical.push_back(space.canonical(units));
    std::vector<double> means, variances;
    process.predict(canonical, means, variances);
    return means;
  };
  const double whole = variance_of(means_at(inner));
  std::vector<double> importance;
  for (std::size_t d = 0; d < space.size(); ++d) {
    std::vector<double> averages;
    for (std::size_t k = 0; k < kOuter; ++k) {
      std::vector<Units> at = inner;
      const double unit = (static_cast<double>(k) + 0.5) / static_cast<double>(kOuter);
      for (Units& units : at) units[d] = unit;
      double mean = 0;
      for (const double value : means_at(at)) mean += value / static_cast<double>(kInner);
      averages.push_back(mean);
    }
    importance.push_back(whole > 0 ? std::clamp(variance_of(averages) / whole, 0.0, 1.0) : 0);
  }
  return importance;
}

}  // namespace atl::tune
