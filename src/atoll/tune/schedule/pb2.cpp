#include "atoll/tune/schedule/pb2.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/search/draws.h"
#include "atoll/tune/search/gaussian_process.h"
#include "atoll/tune/search/searcher.h"

namespace atl::tune {

namespace {

constexpr std::size_t kMostIntervals = 200;  // the newest: a fit's cost grows with their cube
constexpr std::uint64_t kEvenCandidates = 1024;
constexpr int kNeighbours = 64;    // of the donor's settings, among the candidates
constexpr double kFailure = 2.5;   // standard deviations that a member is worse that has failed
constexpr double kDeviations = 3;  // beyond which values at an interval's beginning are alike

// What a member did in an interval.
struct Interval {
  const Trial* trial;
  std::int64_t end;
  double begin_value = 0, change = 0;
};

// Makes mean 0 and variance 1 of what is finite; what is not becomes `failure`.
void standardise(std::vector<Interval*>& together, double Interval::*value, double failure) {
  double mean = 0, square = 0, count = 0;
  for (const Interval* one : together) {
    if (!std::isfinite(one->*value)) continue;
    mean += one->*value;
    ++count;
  }
  mean /= std::max(count, 1.0);
  for (const Interval* one : together) {
    if (std::isfinite(one->*value)) square += (one->*value - mean) * (one->*value - mean);
  }
  const double deviation = square > 0 ? std::sqrt(square / count) : 1;
  for (Interval* one : together) {
    double& of = one->*value;
    of = std::isfinite(of) ? (of - mean) / deviation : failure;
  }
}

// The value that a trial's first interval began with: its donor's. Those that began without one
// began alike.
double first_value(const ScheduleView& view, const Trial& trial) {
  if (trial.parent < 0) return 0;
  return view.value(view.trials[static_cast<std::size_t>(trial.parent)], trial.fork_step);
}

std::vector<Interval> intervals_of(const ScheduleView& view) {
  std::vector<Interval> all;
  for (const Trial& trial : view.trials) {
    if (trial.member < 0) continue;
    double begin = first_value(view, trial);
    for (const Measurement& m : trial.measured) {
      const double end = view.value(trial, m.step);
      all.push_back({&trial, m.step, begin, end - begin});
      begin = end;
    }
    if (trial.has_failed() && trial.measured.empty()) {
      all.push_back({&trial, trial.target, begin, HUGE_VAL});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Interval& a, const Interval& b) { return a.end < b.end; });
  return all;
}

// The space with time and an interval's first value behind its dimensions.
Space with_context(const Space& space) {
  std::vector<Dimension> dimensions = space.dimensions();
  dimensions.push_back({.key = "time"});
  dimensions.push_back({.key = "value"});
  return Space(std::move(dimensions));
}

double unit_of_value(double standardised) {
  return 0.5 + std::clamp(standardised, -kDeviations, kDeviations) / (2 * kDeviations);
}

Units joined(const Units& units, double time, double value) {
  Units all = units;
  all.push_back(time);
  all.push_back(value);
  return all;
}

std::vector<Units> candidates(const Space& space, const Rules& rules, const Takeover& takeover) {
  std::vector<Units> points;
  const QuasiRandom even(rules.seed, space.size());
  Draws draws(rules.seed, DrawFor::kBandit, takeover.number);
  Units shift(space.size());
  for (double& x : shift) x = draws.uniform();
  for (std::uint64_t i = 0; i < kEvenCandidates; ++i) {
    Units units = even.point(i);
    for (std::size_t d = 0; d < units.size(); ++d) units[d] = std::fmod(units[d] + shift[d], 1.0);
    points.push_back(space.canonical(units));
  }
  for (int i = 0; i < kNeighbours; ++i) {
    Units units = takeover.donor.units;
    for (double& x : units) x = std::clamp(x + 0.1 * draws.normal(), 0.0, 1.0);
    points.push_back(space.canonical(units));
  }
  return points;
}

}  // namespace

Units explore_by_bandit(const Space& space, const ScheduleView& view, const Rules& rules,
                        double resample, const Takeover& takeover) {
  std::vector<Interval> all = intervals_of(view);
  if (all.size() < 2 * static_cast<std::size_t>(rules.population)) {
    return explore(space, takeover.donor.units, resample, rules.seed, takeover.number);
  }
  // Where the new interval begins, among what others of its time have shown.
  Interval next = {&takeover.donor, takeover.step, view.value(takeover.donor, takeover.step), 0};
  std::vector<Interval*> ends;
  std::map<std::int64_t, std::vector<Interval*>> by_end;
  std::vector<Interval> now;
  for (Interval& one : all) {
    if (one.end == takeover.step) now.push_back({one.trial, one.end, one.begin_value + one.change});
    by_end[one.end].push_back(&one);
  }
  for (Interval& one : now) ends.push_back(&one);
  ends.push_back(&next);
  standardise(ends, &Interval::begin_value, kFailure);
  for (auto& [end, together] : by_end) {
    standardise(together, &Interval::begin_value, kFailure);
    standardise(together, &Interval::change, kFailure);
  }

  const Space extended = with_context(space);
  const auto time = [&](std::int64_t end) {
    return static_cast<double>(end) / static_cast<double>(rules.max_steps);
  };
  const std::size_t first = all.size() - std::min(all.size(), kMostIntervals);
  Observed observed;
  for (std::size_t i = first; i < all.size(); ++i) {
    observed.points.push_back(
        joined(all[i].trial->units, time(all[i].end), unit_of_value(all[i].begin_value)));
    observed.values.push_back(all[i].change);
  }
  const KernelParameters kernel = fit_kernel(extended, observed, rules.seed);
  GaussianProcess process(extended, observed, kernel);
  const double when = time(std::min(takeover.step + rules.interval, rules.max_steps));
  const double from = unit_of_value(next.begin_value);
  // Only what is known changes where the others are.
  std::vector<Units> under_way;
  for (const Units& units : takeover.together) under_way.push_back(joined(units, when, from));
  process.expect(under_way);

  const std::vector<Units> points = candidates(space, rules, takeover);
  std::vector<Units> places;
  for (const Units& units : points) places.push_back(joined(units, when, from));
  std::vector<double> means, variances;
  process.predict(places, means, variances);
  std::size_t best = 0;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double bound = means[i] - std::sqrt(variances[i]);
    if (bound < least) least = bound, best = i;
  }
  return points[best];
}

}  // namespace atl::tune
