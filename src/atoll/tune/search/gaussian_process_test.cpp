#include "atoll/tune/search/gaussian_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/tune/search/box_minimum.h"
#include "atoll/tune/search/draws.h"
#include "atoll/tune/trial/testing.h"

namespace atl::tune {
namespace {

Observed some_observations(std::size_t count, std::size_t dimensions) {
  Draws draws(3, DrawFor::kRandom, 1);
  Observed observed;
  for (std::size_t i = 0; i < count; ++i) {
    Units& units = observed.points.emplace_back(dimensions);
    double sum = 0;
    for (double& x : units) sum += std::sin(6 * (x = draws.uniform()));
    observed.values.push_back(sum);
  }
  return observed;
}

TEST(Cholesky, SolvesAndInverts) {
  constexpr std::size_t kRows = 17;
  Draws draws(1, DrawFor::kRandom, 0);
  Matrix half(kRows, kRows), a(kRows, kRows);
  for (double& x : half.data) x = draws.normal();
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kRows; ++j) {
      for (std::size_t k = 0; k < kRows; ++k) a.at(i, j) += half.at(i, k) * half.at(j, k);
    }
    a.at(i, i) += 0.1;
  }
  const Cholesky factor(a);
  std::vector<double> x(kRows);
  for (double& value : x) value = draws.normal();
  std::vector<double> solved(kRows);  // A x, then back
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kRows; ++j) solved[i] += a.at(i, j) * x[j];
  }
  factor.solve_lower(solved);
  factor.solve_upper(solved);
  for (std::size_t i = 0; i < kRows; ++i) EXPECT_NEAR(solved[i], x[i], 1e-9);
  const Matrix inverse = factor.inverse();
  for (std::size_t i = 0; i < kRows; ++i) {
    double diagonal = 0;
    for (std::size_t k = 0; k < kRows; ++k) {
      diagonal += a.at(i, k) * inverse.at(std::min(i, k), std::max(i, k));
    }
    EXPECT_NEAR(diagonal, 1, 1e-9);
  }
}

TEST(Eigen, IsThatOfTheMatrix) {
  Matrix a(3, 3);
  a.data = {4, 1, -2, 1, 3, 0.5, -2, 0.5, 5};
  const Eigen eigen = eigen_of(a);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        sum += eigen.vectors.at(i, k) * eigen.values[k] * eigen.vectors.at(j, k);
      }
      EXPECT_NEAR(sum, a.at(i, j), 1e-12);
    }
  }
}

TEST(BoxMinimum, FindsTheEndOfTheBoxAndTheValley) {
  // Rosenbrock's valley; its minimum (1, 1) lies outside of the second box.
  const auto rosenbrock = [](const std::vector<double>& x, std::vector<double>& g) {
    const double a = 1 - x[0], b = x[1] - x[0] * x[0];
    g = {-2 * a - 400 * x[0] * b, 200 * b};
    return a * a + 100 * b * b;
  };
  std::vector<double> x = {-1.2, 1};
  const double free = box_minimum(rosenbrock, x, {.low = {-2, -2}, .high = {2, 2}});
  EXPECT_NEAR(free, 0, 1e-10);
  EXPECT_NEAR(x[0], 1, 1e-5);
  std::vector<double> y = {-1.2, 1};
  box_minimum(rosenbrock, y, {.low = {-2, -2}, .high = {0.5, 2}});
  EXPECT_EQ(y[0], 0.5);
  EXPECT_NEAR(y[1], 0.25, 1e-5);
}

TEST(GaussianProcess, LossHasItsGradient) {
  const Space space = testing::unit_space(3);
  const Observed observed = some_observations(12, 3);
  const std::vector<double> logs = {0.3, -0.5, 1.1, 0.2, -4};
  std::vector<double> gradient, ignored;
  kernel_loss(space, observed, logs, gradient);
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    std::vector<double> up = logs, down = logs;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope =
        (kernel_loss(space, observed, up, ignored) - kernel_loss(space, observed, down, ignored)) /
        (2 * kStep);
    EXPECT_NEAR(gradient[i], slope, 1e-6 * std::max(1.0, std::abs(slope))) << "parameter " << i;
  }
}

TEST(GaussianProcess, PassesThroughWhatItSaw) {
  const Space space = testing::unit_space(2);
  const Observed observed = some_observations(15, 2);
  KernelParameters parameters = fit_kernel(space, observed, 1);
  parameters.noise = 1e-6;
  const GaussianProcess process(space, observed, parameters);
  std::vector<double> means, variances;
  process.predict(observed.points, means, variances);
  for (std::size_t i = 0; i < means.size(); ++i) {
    EXPECT_NEAR(means[i], observed.values[i], 1e-2);
    EXPECT_LT(variances[i], 1e-3);
  }
}

TEST(GaussianProcess, ImprovementHasItsGradientWithTrialsUnderWayToo) {
  const Space space = testing::unit_space(3);
  GaussianProcess process(space, some_observations(20, 3), {{8, 5, 2}, 1.3, 1e-3});
  for (const bool has_running : {false, true}) {
    if (has_running) process.expect({{.2, .3, .9}, {.7, .7, .1}});
    const Units at = {.41, .52, .63};
    std::vector<double> gradient, ignored;
    const double value = process.log_improvement(at, gradient);
    EXPECT_NEAR(value, process.log_improvement({at}).front(), 1e-9);
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < at.size(); ++i) {
      Units up = at, down = at;
      up[i] += kStep;
      down[i] -= kStep;
      const double slope =
          (process.log_improvement(up, ignored) - process.log_improvement(down, ignored)) /
          (2 * kStep);
      EXPECT_NEAR(gradient[i], slope, 1e-5 * std::max(1.0, std::abs(slope)));
    }
  }
}

// log(φ(z) + z Φ(z)); far out by its asymptotic series, φ (1/z² - 3/z⁴ + 15/z⁶ - ...).
TEST(LogImprovement, HasItsDigitsFarOut) {
  EXPECT_NEAR(log_improvement_of(2).log_h, 0.6973835457882284, 1e-12);
  EXPECT_NEAR(log_improvement_of(0).log_h, -0.91893853320467274, 1e-14);
  EXPECT_NEAR(log_improvement_of(-40).log_h, -808.29856835662, 1e-9);
  // The two ways of computing it meet at -5.
  EXPECT_NEAR(log_improvement_of(-5 + 1e-13).log_h, log_improvement_of(-5 - 1e-13).log_h, 1e-10);
  EXPECT_NEAR(log_improvement_of(-5 + 1e-13).cdf_over_h, log_improvement_of(-5 - 1e-13).cdf_over_h,
              1e-9);
  EXPECT_TRUE(std::isfinite(log_improvement_of(-1e6).log_h));
}

}  // namespace
}  // namespace atl::tune
