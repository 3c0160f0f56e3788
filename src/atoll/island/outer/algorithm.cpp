#include "atoll/island/outer/algorithm.h"

#include <algorithm>

namespace atl::island {

void OuterAlgorithm::reset(std::span<const float> anchor, const OwnFragment& own) const {
  std::copy(anchor.begin(), anchor.end(), own.params.begin());
}

void OuterAlgorithm::rebase(std::span<const float> old_anchor, std::span<const float> new_anchor,
                            std::span<const float> /*delta*/, double /*share*/,
                            const OwnFragment& own) const {
  for (std::size_t i = 0; i < own.params.size(); ++i) {
    own.params[i] += new_anchor[i] - old_anchor[i];
  }
}

}  // namespace atl::island
