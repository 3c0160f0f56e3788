#include "atoll/tune/search/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/tune/search/box_minimum.h"
#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

constexpr double kRoot5 = 2.23606797749978969;
constexpr double kLogRoot2Pi = 0.918938533204672742;
constexpr double kLeastNoise = 1e-6;

// Squared distance in dimension i, before its length.
double squared(const Space& space, std::size_t i, double a, double b) {
  if (space[i].kind == Dimension::Kind::kCategory) return a == b ? 0 : 1;
  return (a - b) * (a - b);
}

// Matérn-5/2 of a squared distance, for scale 1, and its derivative by that.
double matern(double squared_distance) {
  const double r = kRoot5 * std::sqrt(squared_distance);
  return (1 + r + r * r / 3) * std::exp(-r);
}
double matern_slope(double squared_distance) {
  const double r = kRoot5 * std::sqrt(squared_distance);
  return -5.0 / 6 * (1 + r) * std::exp(-r);
}

double sum_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Squared distances of all pairs i <= j, for each dimension: what stays while parameters move.
std::vector<Matrix> squared_distances(const Space& space, const std::vector<Units>& points) {
  const std::size_t n = points.size();
  std::vector<Matrix> all;
  for (std::size_t d = 0; d < space.size(); ++d) {
    Matrix& matrix = all.emplace_back(n, n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i; j < n; ++j) {
        matrix.at(i, j) = squared(space, d, points[i][d], points[j][d]);
      }
    }
  }
  return all;
}

// -log p(y | parameters) - log p(parameters), and its gradient by the logs of parameters.
double loss_of(const std::vector<Matrix>& distances, const std::vector<double>& y,
               const std::vector<double>& logs, std::vector<double>& gradient) {
  const std::size_t n = y.size(), dimensions = distances.size();
  std::vector<double> weights(dimensions);
  for (std::size_t d = 0; d < dimensions; ++d) weights[d] = std::exp(logs[d]);
  const double scale = std::exp(logs[dimensions]), noise = std::exp(logs[dimensions + 1]);
  Matrix total(n, n);  // squared distances
  for (std::size_t d = 0; d < dimensions; ++d) {
    for (std::size_t k = 0; k < total.data.size(); ++k) {
      total.data[k] += weights[d] * distances[d].data[k];
    }
  }
  Matrix kernel(n, n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) kernel.at(i, j) = scale * matern(total.at(i, j));
  }
  Matrix noisy = kernel;
  for (std::size_t i = 0; i < n; ++i) noisy.at(i, i) += noise;
  const Cholesky factor(std::move(noisy));
  std::vector<double> alpha = y;
  factor.solve_lower(alpha);
  double loss = 0.5 * sum_of_products(alpha, alpha) + 0.5 * factor.log_determinant();
  factor.solve_upper(alpha);

  // d loss / d θ = ½ tr((K⁻¹ - α αᵀ) dK/dθ); off-diagonal pairs count twice.
  Matrix inner = factor.inverse();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      inner.at(i, j) = (inner.at(i, j) - alpha[i] * alpha[j]) * (i == j ? 0.5 : 1);
    }
  }
  gradient.assign(dimensions + 2, 0);
  Matrix slopes(n, n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      gradient[dimensions] += inner.at(i, j) * kernel.at(i, j);
      slopes.at(i, j) = inner.at(i, j) * scale * matern_slope(total.at(i, j));
    }
    gradient[dimensions + 1] += inner.at(i, i) * noise;
  }
  for (std::size_t d = 0; d < dimensions; ++d) {
    gradient[d] = weights[d] * sum_of_products(slopes.data, distances[d].data);
  }
  for (std::size_t d = 0; d < dimensions; ++d) {
    loss += 0.1 * (weights[d] + 1 / weights[d]);
    gradient[d] += 0.1 * (weights[d] - 1 / weights[d]);
  }
  loss += scale - std::log(scale) + 30 * noise - 0.1 * std::log(noise);
  gradient[dimensions] += scale - 1;
  gradient[dimensions + 1] += 30 * noise - 0.1;
  return loss;
}

}  // namespace

double kernel_loss(const Space& space, const Observed& observed, const std::vector<double>& logs,
                   std::vector<double>& gradient) {
  return loss_of(squared_distances(space, observed.points), observed.values, logs, gradient);
}

KernelParameters fit_kernel(const Space& space, const Observed& observed, std::uint64_t seed) {
  constexpr int kStarts = 8;  // with fewer it can freeze on one length scale
  constexpr int kPolished = 2;
  const std::size_t dimensions = space.size();
  const std::vector<Matrix> distances = squared_distances(space, observed.points);
  const auto loss = [&](const std::vector<double>& logs, std::vector<double>& gradient) {
    return loss_of(distances, observed.values, logs, gradient);
  };
  BoxOptions box = {.low = std::vector<double>(dimensions, std::log(1e-2)),
                    .high = std::vector<double>(dimensions, std::log(1e4)),
                    .max_iterations = 5,
                    .tolerance = 1e-3};
  for (const auto& [low, high] : {std::pair(1e-3, 50.0), std::pair(kLeastNoise, 1.0)}) {
    box.low.push_back(std::log(low));
    box.high.push_back(std::log(high));
  }
  std::vector<std::pair<double, std::vector<double>>> starts;
  Draws draws(seed, DrawFor::kModel, observed.points.size());
  for (int start = 0; start < kStarts; ++start) {
    std::vector<double> logs(dimensions + 2, 0);
    logs[dimensions + 1] = std::log(1e-3);
    for (std::size_t d = 0; start > 0 && d < dimensions; ++d) {
      logs[d] = std::log(0.1) + draws.uniform() * std::log(1e3);  // lengths from 3 to 0.1
    }
    if (start % 2 == 1) logs[dimensions + 1] = std::log(3e-2);
    const double reached = box_minimum(loss, logs, box);
    starts.emplace_back(reached, std::move(logs));
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  box.max_iterations = 40;
  std::size_t best = 0;
  for (std::size_t i = 0; i < kPolished; ++i) {
    starts[i].first = box_minimum(loss, starts[i].second, box);
    if (starts[i].first < starts[best].first) best = i;
  }
  const std::vector<double>& logs = starts[best].second;
  KernelParameters fitted;
  for (std::size_t d = 0; d < dimensions; ++d) {
    fitted.inverse_squared_lengths.push_back(std::exp(logs[d]));
  }
  fitted.scale = std::exp(logs[dimensions]);
  fitted.noise = std::exp(logs[dimensions + 1]);
  return fitted;
}

GaussianProcess::GaussianProcess(const Space& space, Observed observed, KernelParameters parameters)
    : space_(space),
      points_(std::move(observed.points)),
      parameters_(std::move(parameters)),
      values_(std::move(observed.values)) {
  ATOLL_CHECK(!points_.empty(), "a posterior of nothing");
  solve();
}

double GaussianProcess::kernel_at(const Units& a, const Units& b) const {
  double sum = 0;
  for (std::size_t d = 0; d < space_.size(); ++d) {
    sum += parameters_.inverse_squared_lengths[d] * squared(space_, d, a[d], b[d]);
  }
  return parameters_.scale * matern(sum);
}

void GaussianProcess::solve() {
  const std::size_t n = points_.size();
  Matrix kernel(n, n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) kernel.at(i, j) = kernel_at(points_[i], points_[j]);
    kernel.at(i, i) += std::max(parameters_.noise, kLeastNoise);
  }
  factor_.emplace(std::move(kernel));
  alpha_ = values_;
  factor_->solve_lower(alpha_);
  factor_->solve_upper(alpha_);
  best_ = *std::min_element(values_.begin(), values_.end());
}

void GaussianProcess::predict(const std::vector<Units>& points, std::vector<double>& means,
                              std::vector<double>& variances) const {
  const std::size_t n = points_.size(), m = points.size();
  Matrix cross(n, m);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) cross.at(i, j) = kernel_at(points_[i], points[j]);
  }
  means.assign(m, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) means[j] += cross.at(i, j) * alpha_[i];
  }
  factor_->solve_lower(cross);
  variances.assign(m, parameters_.scale);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) variances[j] -= cross.at(i, j) * cross.at(i, j);
  }
  for (double& variance : variances) variance = std::max(variance, 1e-12);
}

void GaussianProcess::expect(const std::vector<Units>& points) {
  if (points.empty()) return;
  std::vector<double> means, variances;
  predict(points, means, variances);
  values_.insert(values_.end(), means.begin(), means.end());
  points_.insert(points_.end(), points.begin(), points.end());
  solve();
}

LogImprovement log_improvement_of(double z) {
  constexpr double kFar = -5;  // h is a 26th of φ there, so the sum below has lost one digit
  if (z > kFar) {
    const double pdf = std::exp(-0.5 * z * z - kLogRoot2Pi);
    const double cdf = 0.5 * std::erfc(-z / std::sqrt(2.0));
    const double h = pdf + z * cdf;
    return {std::log(h), cdf / h, pdf / h};
  }
  // Mills' ratio Φ(-t) / φ(t) = 1 / (t + c) with the continued fraction c = 1/(t + 2/(t + ...)),
  // so h / φ = 1 - t / (t + c) = c / (t + c): no difference of equal numbers.
  const double t = -z;
  double c = 0;
  for (int k = 60; k >= 1; --k) c = k / (t + c);
  return {-0.5 * z * z - kLogRoot2Pi + std::log(c / (t + c)), 1 / c, (t + c) / c};
}

std::vector<double> GaussianProcess::log_improvement(const std::vector<Units>& points) const {
  std::vector<double> means, variances;
  predict(points, means, variances);
  std::vector<double> result(points.size());
  for (std::size_t j = 0; j < result.size(); ++j) {
    const double deviation = std::sqrt(variances[j]);
    result[j] = std::log(deviation) + log_improvement_of((best_ - means[j]) / deviation).log_h;
  }
  return result;
}

double GaussianProcess::log_improvement(const Units& point, std::vector<double>& gradient) const {
  const std::size_t n = points_.size(), dimensions = space_.size();
  std::vector<double> kernel(n), slope(n);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      sum += parameters_.inverse_squared_lengths[d] * squared(space_, d, points_[i][d], point[d]);
    }
    kernel[i] = parameters_.scale * matern(sum);
    slope[i] = parameters_.scale * matern_slope(sum);
  }
  std::vector<double> solved = kernel;
  factor_->solve_lower(solved);
  const double variance = std::max(parameters_.scale - sum_of_products(solved, solved), 1e-12);
  const double deviation = std::sqrt(variance);
  factor_->solve_upper(solved);  // K⁻¹ k

  const double z = (best_ - sum_of_products(kernel, alpha_)) / deviation;
  const LogImprovement part = log_improvement_of(z);
  // d logEI / dμ = -Φ / (σ h), d logEI / dσ = φ / (σ h).
  const double by_mean_share = part.cdf_over_h / deviation;
  const double by_deviation = part.pdf_over_h / deviation;
  gradient.assign(dimensions, 0);
  for (std::size_t d = 0; d < dimensions; ++d) {
    if (space_[d].kind == Dimension::Kind::kCategory) continue;
    const double weight = 2 * parameters_.inverse_squared_lengths[d];
    double by_mean = 0, by_variance = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double change = slope[i] * weight * (point[d] - points_[i][d]);
      by_mean += alpha_[i] * change;
      by_variance += solved[i] * change;
    }
    gradient[d] = -by_mean_share * by_mean - by_deviation * by_variance / deviation;
  }
  return std::log(deviation) + part.log_h;
}

}  // namespace atl::tune
