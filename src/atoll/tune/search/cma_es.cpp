#include "atoll/tune/search/cma_es.h"

#include <algorithm>
#include <cmath>

#include "atoll/tune/search/dense.h"
#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

// The distribution of a generation. Names as in the tutorial.
class Distribution {
 public:
  explicit Distribution(std::size_t dimensions)
      : n_(static_cast<double>(dimensions)),
        mean_(dimensions, 0.5),
        covariance_(dimensions, dimensions),
        path_c_(dimensions),
        path_s_(dimensions) {
    for (std::size_t i = 0; i < dimensions; ++i) covariance_.at(i, i) = 1;
    lambda_ = 4 + static_cast<std::size_t>(3 * std::log(n_));
    const std::size_t mu = lambda_ / 2;
    double sum = 0;
    for (std::size_t i = 0; i < mu; ++i) {
      weights_.push_back(std::log((static_cast<double>(lambda_) + 1) / 2) -
                         std::log(static_cast<double>(i + 1)));
      sum += weights_.back();
    }
    double squares = 0;
    for (double& weight : weights_) {
      weight /= sum;
      squares += weight * weight;
    }
    mu_eff_ = 1 / squares;
    c_s_ = (mu_eff_ + 2) / (n_ + mu_eff_ + 5);
    d_s_ = 1 + 2 * std::max(0.0, std::sqrt((mu_eff_ - 1) / (n_ + 1)) - 1) + c_s_;
    c_c_ = (4 + mu_eff_ / n_) / (n_ + 4 + 2 * mu_eff_ / n_);
    c_1_ = 2 / ((n_ + 1.3) * (n_ + 1.3) + mu_eff_);
    c_mu_ = std::min(1 - c_1_, 2 * (mu_eff_ - 2 + 1 / mu_eff_) / ((n_ + 2) * (n_ + 2) + mu_eff_));
    chi_ = std::sqrt(n_) * (1 - 1 / (4 * n_) + 1 / (21 * n_ * n_));
    decompose();
  }

  std::size_t lambda() const { return lambda_; }
  int generation() const { return generation_; }

  Units draw(Draws& draws) const {
    Units x;
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      x = mean_;
      for (std::size_t j = 0; j < x.size(); ++j) {
        const double step = sigma_ * std::sqrt(std::max(eigen_.values[j], 0.0)) * draws.normal();
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += step * eigen_.vectors.at(i, j);
      }
      if (std::all_of(x.begin(), x.end(), [](double u) { return u >= 0 && u <= 1; })) break;
    }
    for (double& u : x) u = std::clamp(u, 0.0, 1.0);
    return x;
  }

  // `ranked`: lambda points, the best first.
  void update(const std::vector<const Units*>& ranked) {
    const std::size_t d = mean_.size();
    const std::vector<double> before = mean_;
    std::vector<double> y(d);
    for (std::size_t i = 0; i < d; ++i) {
      mean_[i] = 0;
      for (std::size_t k = 0; k < weights_.size(); ++k) mean_[i] += weights_[k] * (*ranked[k])[i];
      y[i] = (mean_[i] - before[i]) / sigma_;
    }
    // C^(-1/2) y = B D⁻¹ Bᵀ y.
    std::vector<double> whitened(d);
    for (std::size_t j = 0; j < d; ++j) {
      double along = 0;
      for (std::size_t i = 0; i < d; ++i) along += eigen_.vectors.at(i, j) * y[i];
      along /= std::sqrt(std::max(eigen_.values[j], 1e-20));
      for (std::size_t i = 0; i < d; ++i) whitened[i] += along * eigen_.vectors.at(i, j);
    }
    ++generation_;
    double length = 0;
    for (std::size_t i = 0; i < d; ++i) {
      path_s_[i] = (1 - c_s_) * path_s_[i] + std::sqrt(c_s_ * (2 - c_s_) * mu_eff_) * whitened[i];
      length += path_s_[i] * path_s_[i];
    }
    length = std::sqrt(length);
    const double settled = std::sqrt(1 - std::pow(1 - c_s_, 2 * generation_));
    const bool moves = length / settled / chi_ < 1.4 + 2 / (n_ + 1);
    for (std::size_t i = 0; i < d; ++i) {
      path_c_[i] =
          (1 - c_c_) * path_c_[i] + (moves ? std::sqrt(c_c_ * (2 - c_c_) * mu_eff_) * y[i] : 0);
    }
    const double kept = 1 - c_1_ - c_mu_ + (moves ? 0 : c_1_ * c_c_ * (2 - c_c_));
    Matrix next(d, d);
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j < d; ++j) {
        double sum = kept * covariance_.at(i, j) + c_1_ * path_c_[i] * path_c_[j];
        for (std::size_t k = 0; k < weights_.size(); ++k) {
          const double a = ((*ranked[k])[i] - before[i]) / sigma_;
          const double b = ((*ranked[k])[j] - before[j]) / sigma_;
          sum += c_mu_ * weights_[k] * a * b;
        }
        next.at(i, j) = sum;
      }
    }
    covariance_ = std::move(next);
    sigma_ *= std::exp(std::min(1.0, c_s_ / d_s_ * (length / chi_ - 1)));
    sigma_ = std::clamp(sigma_, 1e-6, 1.0);
    decompose();
  }

 private:
  void decompose() { eigen_ = eigen_of(covariance_); }

  double n_;
  std::size_t lambda_ = 0;
  std::vector<double> weights_;
  double mu_eff_ = 0, c_s_ = 0, d_s_ = 0, c_c_ = 0, c_1_ = 0, c_mu_ = 0, chi_ = 0;
  std::vector<double> mean_;
  double sigma_ = 1.0 / 6;
  Matrix covariance_;
  std::vector<double> path_c_, path_s_;
  Eigen eigen_;
  int generation_ = 0;
};

std::string note_of(int generation) {
  return "generation " + std::to_string(generation);
}

}  // namespace

Suggestion CmaEsSearch::suggest(const SearchView& view) {
  Distribution distribution(view.space.size());
  for (;;) {
    // Its first results, in the order in which they came.
    std::vector<const Observation*> mine;
    const std::string note = note_of(distribution.generation());
    for (const Observation& seen : view.done) {
      if (seen.note == note && mine.size() < distribution.lambda()) mine.push_back(&seen);
    }
    if (mine.size() < distribution.lambda()) break;
    std::stable_sort(mine.begin(), mine.end(), [](const Observation* a, const Observation* b) {
      return a->value < b->value;
    });
    std::vector<const Units*> ranked;
    for (const Observation* seen : mine) ranked.push_back(&seen->units);
    distribution.update(ranked);
  }
  Draws draws(view.seed, DrawFor::kCmaEs, static_cast<std::uint64_t>(view.number));
  return {distribution.draw(draws), note_of(distribution.generation())};
}

}  // namespace atl::tune
