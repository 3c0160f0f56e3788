#include "atoll/tune/search/tpe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

constexpr int kCandidates = 24;
constexpr std::size_t kFullWeights = 25;  // older observations count less

// P(a < Z <= b), Z standard normal, without cancellation in either tail.
double normal_mass(double a, double b) {
  const auto tail = [](double x) { return 0.5 * std::erfc(x / std::sqrt(2.0)); };
  if (a > 0) return tail(a) - tail(b);
  if (b < 0) return tail(-b) - tail(-a);
  return 1 - tail(b) - tail(-a);
}

// Weights of observations in the order of their trials, the newest last.
std::vector<double> weights_of(std::size_t count) {
  std::vector<double> weights(count, 1.0);
  if (count < kFullWeights) return weights;
  const std::size_t ramp = count - kFullWeights;
  const double first = 1 / static_cast<double>(count);
  for (std::size_t i = 0; i < ramp; ++i) {
    const double t = ramp > 1 ? static_cast<double>(i) / static_cast<double>(ramp - 1) : 0;
    weights[i] = first + t * (1 - first);
  }
  return weights;
}

// The density of one dimension's observed coordinates: a mixture with a wide prior.
class Parzen {
 public:
  Parzen(const Dimension& dimension, std::vector<double> units) : dimension_(dimension) {
    weights_ = weights_of(units.size());
    weights_.push_back(1);  // the prior
    double sum = 0;
    for (const double weight : weights_) sum += weight;
    for (double& weight : weights_) weight /= sum;
    if (dimension.kind == Dimension::Kind::kCategory) {
      count_categories(units);
    } else {
      place_kernels(units);
    }
  }

  double draw(Draws& draws) const {
    double left = draws.uniform();
    if (dimension_.kind == Dimension::Kind::kCategory) {
      std::size_t i = 0;
      while (i + 1 < shares_.size() && left >= shares_[i]) left -= shares_[i++];
      return dimension_.unit_of_index(i);
    }
    std::size_t kernel = 0;
    while (kernel + 1 < weights_.size() && left >= weights_[kernel]) left -= weights_[kernel++];
    for (int attempt = 0; attempt < 100; ++attempt) {
      const double x = means_[kernel] + widths_[kernel] * draws.normal();
      if (x >= 0 && x < 1) return dimension_.snap(x);
    }
    return dimension_.snap(means_[kernel]);
  }

  double log_density(double unit) const {
    if (dimension_.kind == Dimension::Kind::kCategory) {
      return std::log(shares_[dimension_.index_of(unit)]);
    }
    double low = unit, high = unit;
    const bool is_discrete = dimension_.num_values() > 0;
    if (is_discrete) cell(dimension_.index_of(unit), low, high);
    double sum = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const double m = means_[k], s = widths_[k];
      const double inside = normal_mass((0 - m) / s, (1 - m) / s);
      const double mass = is_discrete ? normal_mass((low - m) / s, (high - m) / s)
                                      : std::exp(-0.5 * (unit - m) * (unit - m) / (s * s)) / s;
      sum += weights_[k] * mass / inside;
    }
    return std::log(std::max(sum, std::numeric_limits<double>::min()));
  }

 private:
  // From half way to the value below to half way to the one above.
  void cell(std::size_t index, double& low, double& high) const {
    const double here = dimension_.unit_of_index(index);
    low = index == 0 ? 0 : 0.5 * (here + dimension_.unit_of_index(index - 1));
    high = index + 1 == dimension_.num_values()
               ? 1
               : 0.5 * (here + dimension_.unit_of_index(index + 1));
  }

  void count_categories(const std::vector<double>& units) {
    const std::size_t count = dimension_.num_values();
    shares_.assign(count, weights_.back() / static_cast<double>(count));
    const double even = 1 / static_cast<double>(weights_.size());
    const double whole = 1 + even * static_cast<double>(count);
    for (std::size_t k = 0; k < units.size(); ++k) {
      for (std::size_t i = 0; i < count; ++i) {
        const double mine = i == dimension_.index_of(units[k]) ? 1 : 0;
        shares_[i] += weights_[k] * (mine + even) / whole;
      }
    }
  }

  void place_kernels(std::vector<double> units) {
    units.push_back(0.5);  // the prior's mean
    const std::size_t count = units.size();
    std::vector<double> sorted = units;
    std::sort(sorted.begin(), sorted.end());
    const double narrowest = 1 / static_cast<double>(std::min<std::size_t>(100, count + 1));
    means_ = units;
    for (const double unit : units) {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), unit);
      const auto after = at + 1;
      double width = 0;
      // The ends of the range count only for what has no other neighbour.
      if (at != sorted.begin()) width = std::max(width, unit - *(at - 1));
      if (after != sorted.end()) width = std::max(width, *after - unit);
      if (count == 1) width = 1;
      widths_.push_back(std::clamp(width, narrowest, 1.0));
    }
    widths_.back() = 1;
  }

  const Dimension& dimension_;
  std::vector<double> weights_;  // the prior last
  std::vector<double> means_, widths_;
  std::vector<double> shares_;  // of categories
};

struct Split {
  std::vector<const Observation*> good, rest;  // each by trial
};

Split split(const SearchView& view) {
  std::vector<const Observation*> ranked;
  for (const Observation& seen : view.done) ranked.push_back(&seen);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Observation* a, const Observation* b) { return a->value < b->value; });
  const std::size_t count = std::min<std::size_t>((ranked.size() + 9) / 10, 25);
  Split parts;
  parts.good.assign(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count));
  parts.rest.assign(ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
  for (const Observation& running : view.running) parts.rest.push_back(&running);
  for (auto* part : {&parts.good, &parts.rest}) {
    std::sort(part->begin(), part->end(),
              [](const Observation* a, const Observation* b) { return a->trial < b->trial; });
  }
  return parts;
}

// The coordinates of those observations in which the dimension matters.
std::vector<double> coordinates(const Space& space, std::size_t d,
                                const std::vector<const Observation*>& part) {
  std::vector<double> units;
  for (const Observation* seen : part) {
    if (space.is_active(d, seen->units)) units.push_back(seen->units[d]);
  }
  return units;
}

}  // namespace

Suggestion TpeSearch::suggest(const SearchView& view) {
  if (view.number < view.startup || view.done.size() < 2) return {quasi_random_point(view), ""};
  const Split parts = split(view);
  Draws draws(view.seed, DrawFor::kTpe, static_cast<std::uint64_t>(view.number));
  // The best of fewer candidates where the place is taken, at last any that is likely to be good.
  constexpr int kAttempts = 8;
  Units units(view.space.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    for (std::size_t d = 0; d < view.space.size(); ++d) {
      const Parzen good(view.space[d], coordinates(view.space, d, parts.good));
      const Parzen rest(view.space[d], coordinates(view.space, d, parts.rest));
      double best = -std::numeric_limits<double>::infinity();
      const int candidates = std::max(1, kCandidates >> (2 * attempt));
      for (int i = 0; i < candidates; ++i) {
        const double unit = good.draw(draws);
        const double score = good.log_density(unit) - rest.log_density(unit);
        if (score > best) {
          best = score;
          units[d] = unit;
        }
      }
    }
    if (!is_taken(view, view.space.canonical(units))) break;
  }
  return {units, ""};
}

}  // namespace atl::tune
