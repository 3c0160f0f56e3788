#pragma once

// What the tests of searches share: functions whose minima are known.

#include <cmath>
#include <vector>

#include "atoll/tune/trial/simulation.h"

namespace atl::tune::testing {

/// d continuous dimensions from 0 to 1.
inline Space unit_space(std::size_t d) {
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < d; ++i) dimensions.push_back({.key = "x" + std::to_string(i)});
  return Space(std::move(dimensions));
}

/// Branin less its minimum, on [-5, 10] x [0, 15].
inline double branin_regret(const Units& u) {
  constexpr double kPi = 3.14159265358979323846;
  const double x = -5 + 15 * u[0], y = 15 * u[1];
  const double a = y - 5.1 * x * x / (4 * kPi * kPi) + 5 * x / kPi - 6;
  return a * a + 10 * (1 - 1 / (8 * kPi)) * std::cos(x) + 10 - 0.39788735772973816;
}

/// Hartmann's function of six dimensions less its minimum.
inline double hartmann6_regret(const Units& u) {
  static const double kAlpha[4] = {1, 1.2, 3, 3.2};
  static const double kA[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                  {.05, 10, 17, .1, 8, 14},
                                  {3, 3.5, 1.7, 10, 17, 8},
                                  {17, 8, .05, 10, .1, 14}};
  static const double kP[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
                                  {2329, 4135, 8307, 3736, 1004, 9991},
                                  {2348, 1451, 3522, 2883, 3047, 6650},
                                  {4047, 8828, 8732, 5743, 1091, 381}};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double inside = 0;
    for (int j = 0; j < 6; ++j) {
      const double d = u[static_cast<std::size_t>(j)] - 1e-4 * kP[i][j];
      inside += kA[i][j] * d * d;
    }
    sum -= kAlpha[i] * std::exp(-inside);
  }
  return sum + 3.322368011415515;
}

/// A study of a function of the point alone, trials of one step.
inline Problem problem_on(const Space& space, const std::string& searcher, std::uint64_t seed,
                          std::int64_t trials) {
  return {.space = space,
          .objectives = {{.name = "f"}},
          .searcher = searcher,
          .rules = {.seed = seed},
          .trials = trials};
}

/// The least value among a study's trials.
inline double least(const History& history) {
  double least = HUGE_VAL;
  for (const Trial& trial : history.trials()) {
    for (const Measurement& m : trial.measured) least = std::fmin(least, m.values.front());
  }
  return least;
}

/// The least value that a searcher finds of `function` in so many trials.
template <typename F>
double search(const Space& space, const std::string& searcher, std::uint64_t seed,
              std::int64_t trials, const F& function, int workers = 1) {
  const SimulatedOutcome outcome = simulate_study(
      problem_on(space, searcher, seed, trials),
      {.train = [&](const Trial& trial,
                    std::int64_t) { return std::vector<double>{function(trial.units)}; },
       .seconds = [](const Trial& trial, std::int64_t) { return 1 + 0.01 * (trial.number % 7); },
       .workers = workers});
  return least(outcome.history);
}

}  // namespace atl::tune::testing
