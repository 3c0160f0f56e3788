#include "atoll/tune/search/random.h"

#include "atoll/tune/search/draws.h"

namespace atl::tune {

Suggestion RandomSearch::suggest(const SearchView& view) {
  Draws draws(view.seed, DrawFor::kRandom, static_cast<std::uint64_t>(view.number));
  Units units(view.space.size());
  for (double& unit : units) unit = draws.uniform();
  return {units, ""};
}

Suggestion QuasiRandomSearch::suggest(const SearchView& view) {
  return {quasi_random_point(view), ""};
}

}  // namespace atl::tune
