#pragma once

// A Gaussian process over the unit cube: Matérn-5/2 kernel with a length scale for each dimension.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/tune/search/dense.h"
#include "atoll/tune/search/space.h"

namespace atl::tune {

/// What the kernel is made of.
struct KernelParameters {
  std::vector<double> inverse_squared_lengths;  ///< one a dimension
  double scale = 1;                             ///< variance of the function
  double noise = 1e-4;                          ///< variance of an observation about it
};

/// Observations: canonical points, values of mean 0 and variance 1.
struct Observed {
  std::vector<Units> points;
  std::vector<double> values;
};

/// The parameters of largest posterior density, from several starts; priors as Optuna's GPSampler
/// has them: -0.1 (x + 1/x) on each inverse squared length, Gamma(2, 1) on the scale, Gamma(1.1,
/// 30) on the noise. `seed` draws the starts.
KernelParameters fit_kernel(const Space& space, const Observed& observed, std::uint64_t seed);

/// The negative log density that fit_kernel makes small, and its gradient, at log-parameters
/// (lengths, scale, noise).
double kernel_loss(const Space& space, const Observed& observed, const std::vector<double>& logs,
                   std::vector<double>& gradient);

/// A function's posterior.
class GaussianProcess {
 public:
  /// `observed` needs a point. `space` must outlive this.
  GaussianProcess(const Space& space, Observed observed, KernelParameters parameters);

  /// Mean and variance at points, (m) each.
  void predict(const std::vector<Units>& points, std::vector<double>& means,
               std::vector<double>& variances) const;
  /// Adds points that are under way as if their values were the means: the variance shrinks there,
  /// and no mean changes.
  void expect(const std::vector<Units>& points);

  /// The log of the expected improvement on the least value (Ament et al. 2023,
  /// arXiv:2310.20708), at points (m).
  std::vector<double> log_improvement(const std::vector<Units>& points) const;
  /// The same at one point, with its gradient.
  double log_improvement(const Units& point, std::vector<double>& gradient) const;

 private:
  void solve();
  double kernel_at(const Units& a, const Units& b) const;

  const Space& space_;
  std::vector<Units> points_;
  KernelParameters parameters_;
  std::optional<Cholesky> factor_;
  std::vector<double> values_;
  std::vector<double> alpha_;  // K⁻¹ y
  double best_ = 0;
};

/// log(φ(z) + z Φ(z)) without loss of digits for z far below 0, and the ratios Φ / h and φ / h of
/// h = φ + z Φ, which its derivatives are made of.
struct LogImprovement {
  double log_h, cdf_over_h, pdf_over_h;
};
LogImprovement log_improvement_of(double z);

}  // namespace atl::tune
