#pragma once

#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// Uniform in unit coordinates, each trial for itself.
class RandomSearch : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;
};

/// A scrambled Halton sequence: no cluster and no hole, in any number of trials.
class QuasiRandomSearch : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;
};

}  // namespace atl::tune
