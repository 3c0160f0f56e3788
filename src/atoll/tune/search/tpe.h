#pragma once

#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// Tree-structured Parzen estimator (Bergstra et al. 2011), each dimension for itself, with the
/// rules of Optuna's TPESampler: the best min(⌈n/10⌉, 25) against the rest, 24 candidates, kernels
/// as wide as the gap to the neighbour, trials under way counted among the rest.
class TpeSearch : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;
};

}  // namespace atl::tune
