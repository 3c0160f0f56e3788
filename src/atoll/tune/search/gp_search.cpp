#include "atoll/tune/search/gp_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/tune/search/box_minimum.h"
#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

constexpr std::size_t kMostCandidates = 2048;
constexpr std::size_t kLocalSearches = 6;
constexpr std::size_t kFitPoints = 200;  // enough for a kernel's few parameters

// How many results a kernel is fitted to when there are `count`.
std::size_t fit_size(std::size_t count) {
  std::size_t size = 30;
  if (count <= size) return count;
  while (size + std::max<std::size_t>(size / 10, 1) <= count)
    size += std::max<std::size_t>(size / 10, 1);
  return size;
}

// Of many observations the best quarter of what a fit can take, and others evenly.
Observed thinned(const Observed& observed) {
  const std::size_t n = observed.points.size();
  if (n <= kFitPoints) return observed;
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return observed.values[a] < observed.values[b];
  });
  Observed some;
  const auto add = [&](std::size_t i) {
    some.points.push_back(observed.points[i]);
    some.values.push_back(observed.values[i]);
  };
  const std::size_t best = kFitPoints / 4, others = kFitPoints - best;
  for (std::size_t i = 0; i < best; ++i) add(order[i]);
  for (std::size_t i = 0; i < others; ++i) add(order[best + i * (n - best) / others]);
  return some;
}

// Makes log improvement large from one point: L-BFGS in the continuous coordinates, then each
// other one by its values in turn, until neither finds more.
class LocalSearch {
 public:
  LocalSearch(const Space& space, const GaussianProcess& process)
      : space_(space), process_(process) {
    for (std::size_t d = 0; d < space.size(); ++d) {
      (space[d].num_values() == 0 ? continuous_ : discrete_).push_back(d);
    }
  }

  double run(Units& units) const {
    constexpr int kRounds = 3;
    std::vector<double> ignored;
    double value = process_.log_improvement(units, ignored);
    for (int round = 0; round < kRounds; ++round) {
      const double before = value;
      value = std::max(value, climb(units));
      for (const std::size_t d : discrete_) value = try_values(units, d, value);
      if (discrete_.empty() || !(value > before + 1e-6)) break;
    }
    return value;
  }

 private:
  double climb(Units& units) const {
    if (continuous_.empty()) return -std::numeric_limits<double>::infinity();
    const BoxOptions box = {.low = std::vector<double>(continuous_.size(), 0),
                            .high = std::vector<double>(continuous_.size(), 1),
                            .max_iterations = 50,
                            .tolerance = 1e-4};
    std::vector<double> x, whole;
    for (const std::size_t d : continuous_) x.push_back(units[d]);
    Units at = units;
    const double least = box_minimum(
        [&](const std::vector<double>& point, std::vector<double>& gradient) {
          for (std::size_t i = 0; i < point.size(); ++i) at[continuous_[i]] = point[i];
          const double value = process_.log_improvement(at, whole);
          for (std::size_t i = 0; i < point.size(); ++i) gradient[i] = -whole[continuous_[i]];
          return -value;
        },
        x, box);
    for (std::size_t i = 0; i < x.size(); ++i) units[continuous_[i]] = x[i];
    return -least;
  }

  double try_values(Units& units, std::size_t d, double value) const {
    constexpr std::size_t kMostValues = 32;
    const Dimension& dimension = space_[d];
    const std::size_t count = dimension.num_values();
    const std::size_t now = dimension.index_of(units[d]);
    std::vector<double> ignored;
    const double before = units[d];
    double best = before;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t away = i > now ? i - now : now - i;
      const bool is_near = dimension.kind != Dimension::Kind::kCategory && away <= 2;
      if (count > kMostValues && !is_near) continue;
      units[d] = dimension.unit_of_index(i);
      const double there = process_.log_improvement(units, ignored);
      if (!(there > value)) continue;
      value = there;
      best = units[d];
    }
    units[d] = best;
    return value;
  }

  const Space& space_;
  const GaussianProcess& process_;
  std::vector<std::size_t> continuous_, discrete_;
};

}  // namespace

std::vector<double> standardised(const std::vector<Observation>& done) {
  std::vector<double> finite;
  for (const Observation& seen : done) {
    if (std::isfinite(seen.value)) finite.push_back(seen.value);
  }
  if (finite.empty()) return std::vector<double>(done.size(), 0);
  std::sort(finite.begin(), finite.end());
  const double least = finite.front(), median = finite[finite.size() / 2];
  // A loss that has exploded says no more than one that is bad.
  const double most = std::min(finite.back(), median + 5 * std::max(median - least, 1e-300));
  std::vector<double> values;
  double mean = 0, variance = 0;
  for (const Observation& seen : done) {
    values.push_back(std::isfinite(seen.value) ? std::min(seen.value, most) : most);
    mean += values.back() / static_cast<double>(done.size());
  }
  for (const double value : values) {
    variance += (value - mean) * (value - mean) / static_cast<double>(done.size());
  }
  const double deviation = variance > 0 ? std::sqrt(variance) : 1;
  for (double& value : values) value = (value - mean) / deviation;
  return values;
}

const KernelParameters& GpSearch::fitted(const SearchView& view, const Observed& observed) {
  const std::size_t count = fit_size(observed.points.size());
  std::vector<int> trials;
  for (std::size_t i = 0; i < count; ++i) trials.push_back(view.done[i].trial);
  if (fit_ && fit_->count == count && fit_->trials == trials) return fit_->parameters;
  const std::vector<Observation> first(view.done.begin(),
                                       view.done.begin() + static_cast<std::ptrdiff_t>(count));
  Observed some = {.points = {}, .values = standardised(first)};
  for (const Observation& seen : first) some.points.push_back(seen.units);
  fit_ = {count, fit_kernel(view.space, thinned(some), view.seed), std::move(trials)};
  return fit_->parameters;
}

Suggestion GpSearch::suggest(const SearchView& view) {
  const Space& space = view.space;
  if (view.number < view.startup || view.done.size() < 2) return {quasi_random_point(view), ""};
  Observed observed = {.points = {}, .values = standardised(view.done)};
  for (const Observation& seen : view.done) observed.points.push_back(seen.units);
  const KernelParameters parameters = fitted(view, observed);
  GaussianProcess process(space, observed, parameters);
  std::vector<Units> pending;
  for (const Observation& running : view.running) pending.push_back(running.units);
  process.expect(pending);

  // Candidates: fewer where each costs more; the best points so far, moved a little, among them.
  const std::size_t n = observed.points.size();
  const std::size_t count =
      std::clamp<std::size_t>(std::size_t{100'000'000} / (n * n + 1), 256, kMostCandidates);
  if (!candidates_) candidates_.emplace(view.seed, space.size());
  Draws draws(view.seed, DrawFor::kAcquisition, static_cast<std::uint64_t>(view.number));
  Units shift(space.size());
  for (double& x : shift) x = draws.uniform();
  std::vector<Units> points;
  for (std::size_t i = 0; i < count; ++i) {
    Units units = candidates_->point(i);
    for (std::size_t d = 0; d < units.size(); ++d) units[d] = std::fmod(units[d] + shift[d], 1.0);
    points.push_back(space.canonical(units));
  }
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return observed.values[a] < observed.values[b];
  });
  for (std::size_t k = 0; k < std::min<std::size_t>(n, 5); ++k) {
    for (int copy = 0; copy < 16; ++copy) {
      Units units = observed.points[order[k]];
      const double width = copy < 8 ? 0.1 : 0.01;
      for (double& x : units) x = std::clamp(x + width * draws.normal(), 0.0, 1.0);
      points.push_back(space.canonical(units));
    }
  }
  const std::vector<double> scores = process.log_improvement(points);
  std::vector<std::size_t> ranked(points.size());
  for (std::size_t i = 0; i < ranked.size(); ++i) ranked[i] = i;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });

  const LocalSearch search(space, process);
  std::vector<std::pair<double, Units>> found;
  for (const std::size_t i : ranked) {
    if (found.size() == kLocalSearches) break;
    // Two that begin at one place end at one.
    const bool is_near = std::any_of(found.begin(), found.end(), [&](const auto& other) {
      return is_same_place(other.second, points[i]);
    });
    if (is_near) continue;
    Units units = points[i];
    const double value = search.run(units);
    found.emplace_back(value, space.canonical(units));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [value, units] : found) {
    if (!is_taken(view, units)) return {units, ""};
  }
  for (const std::size_t i : ranked) {
    if (!is_taken(view, points[i])) return {points[i], ""};
  }
  return {quasi_random_point(view), ""};
}

}  // namespace atl::tune
