#pragma once

#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// Covariance matrix adaptation (Hansen 2016, arXiv:1604.00772): 4 + ⌊3 ln d⌋ trials a generation,
/// from the middle of the space with a step of 1/6 of it. A trial that is asked for before its
/// generation's results are in is drawn from the present one, so that no worker waits. Words have
/// no order here: the index of a word is taken for a number.
class CmaEsSearch : public Searcher {
 public:
  Suggestion suggest(const SearchView& view) override;
};

}  // namespace atl::tune
