#include "atoll/tune/search/box_minimum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>

namespace atl::tune {

namespace {

using Vector = std::vector<double>;

constexpr std::size_t kMemory = 8;
constexpr double kArmijo = 1e-4;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Pair {
  Vector s, y;
  double rho;
};

// -H g by the two loops, in the coordinates that are free.
Vector direction(const std::deque<Pair>& memory, const Vector& gradient,
                 const std::vector<bool>& free) {
  const auto masked = [&](Vector v) {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = free[i] ? v[i] : 0;
    return v;
  };
  Vector q = masked(gradient);
  std::vector<double> alpha(memory.size());
  for (std::size_t k = memory.size(); k-- > 0;) {
    alpha[k] = memory[k].rho * dot(masked(memory[k].s), q);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] -= alpha[k] * memory[k].y[i];
    q = masked(q);
  }
  if (!memory.empty()) {
    const Pair& last = memory.back();
    const double scale = dot(last.s, last.y) / dot(last.y, last.y);
    for (double& x : q) x *= scale;
  }
  for (std::size_t k = 0; k < memory.size(); ++k) {
    const double beta = memory[k].rho * dot(masked(memory[k].y), q);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] += (alpha[k] - beta) * memory[k].s[i];
    q = masked(q);
  }
  for (double& x : q) x = -x;
  return q;
}

}  // namespace

double box_minimum(const Differentiable& f, Vector& x, const BoxOptions& options) {
  const std::size_t n = x.size();
  const auto finite = [](double value) {
    return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
  };
  const auto clamp = [&](std::size_t i, double value) {
    return std::clamp(value, options.low[i], options.high[i]);
  };
  for (std::size_t i = 0; i < n; ++i) x[i] = clamp(i, x[i]);
  Vector gradient(n), next_gradient(n), next(n);
  double value = finite(f(x, gradient));
  std::deque<Pair> memory;
  for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
    std::vector<bool> free(n);
    double steepest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const bool out = (x[i] <= options.low[i] && gradient[i] > 0) ||
                       (x[i] >= options.high[i] && gradient[i] < 0);
      free[i] = !out;
      if (!out) steepest = std::max(steepest, std::abs(gradient[i]));
    }
    if (!(steepest > options.tolerance)) break;
    Vector d = direction(memory, gradient, free);
    if (!(dot(d, gradient) < 0)) {
      memory.clear();
      d = direction(memory, gradient, free);
    }
    // The first step has no idea of its length.
    double t = memory.empty() ? std::min(1.0, 0.1 / steepest) : 1;
    double next_value = std::numeric_limits<double>::infinity();
    bool found = false;
    for (int attempt = 0; attempt < 30 && !found; ++attempt, t *= 0.5) {
      double slope = 0;
      for (std::size_t i = 0; i < n; ++i) {
        next[i] = clamp(i, x[i] + t * d[i]);
        slope += gradient[i] * (next[i] - x[i]);
      }
      next_value = finite(f(next, next_gradient));
      found = next_value <= value + kArmijo * slope && slope < 0;
    }
    if (!found) {
      if (memory.empty()) break;
      memory.clear();  // its curvature was of elsewhere
      continue;
    }
    Pair pair = {.s = next, .y = next_gradient, .rho = 0};
    for (std::size_t i = 0; i < n; ++i) {
      pair.s[i] -= x[i];
      pair.y[i] -= gradient[i];
    }
    const double curvature = dot(pair.s, pair.y);
    if (curvature > 1e-12 * dot(pair.y, pair.y)) {
      pair.rho = 1 / curvature;
      memory.push_back(std::move(pair));
      if (memory.size() > kMemory) memory.pop_front();
    }
    x = next;
    gradient = next_gradient;
    value = next_value;
  }
  return value;
}

}  // namespace atl::tune
