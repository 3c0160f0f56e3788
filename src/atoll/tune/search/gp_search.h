#pragma once

#include <optional>

#include "atoll/tune/search/gaussian_process.h"
#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// Where a Gaussian process of the results expects the most improvement, trials under way taken for
/// done with the values it expects: with draws of their values in place of these the regret was
/// twice as large (bench/results/tune-searchers.md). The kernel is fitted again after
/// each of the first 30 results, then when there are a tenth more.
class GpSearch : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;

 private:
  struct Fitted {
    std::size_t count = 0;  ///< of results it was fitted to
    KernelParameters parameters;
    std::vector<int> trials;  ///< these
  };

  const KernelParameters& fitted(const SearchView& view, const Observed& observed);

  // What the last suggestions have left: functions of the view, only kept.
  std::optional<Fitted> fit_;
  std::optional<QuasiRandom> candidates_;
};

/// Values of mean 0 and variance 1: failures as bad as the worst, and what lies far above the
/// others pulled in.
std::vector<double> standardised(const std::vector<Observation>& done);

}  // namespace atl::tune
