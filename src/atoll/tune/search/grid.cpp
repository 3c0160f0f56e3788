#include "atoll/tune/search/grid.h"

#include <set>

#include "atoll/base/check.h"

namespace atl::tune {

const std::vector<Units>& Grid::points(const Space& space) const {
  if (!points_.empty()) return points_;
  std::set<Units> seen;  // where conditions leave a dimension out, its values are one point
  std::vector<std::size_t> index(space.size());
  for (;;) {
    Units units(space.size());
    for (std::size_t i = 0; i < space.size(); ++i) units[i] = space[i].unit_of_index(index[i]);
    units = space.canonical(units);
    if (seen.insert(units).second) points_.push_back(units);
    std::size_t i = space.size();
    while (i > 0 && ++index[i - 1] == space[i - 1].num_values()) index[--i] = 0;
    if (i == 0) return points_;
  }
}

Suggestion Grid::suggest(const SearchView& view) {
  const std::vector<Units>& all = points(view.space);
  ATOLL_CHECK(static_cast<std::size_t>(view.number) < all.size(), "trial {} of a grid of {}",
              view.number, all.size());
  return {all[static_cast<std::size_t>(view.number)], ""};
}

double Grid::num_trials(const Space& space) const {
  return static_cast<double>(points(space).size());
}

}  // namespace atl::tune
