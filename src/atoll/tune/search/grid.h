#pragma once

#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// Every point of a finite space once, the last dimension fastest.
class Grid : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;
  double num_trials(const Space& space) const override;

 private:
  const std::vector<Units>& points(const Space& space) const;

  mutable std::vector<Units> points_;
};

}  // namespace atl::tune
