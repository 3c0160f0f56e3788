#include "atoll/parallel/compress/error_feedback_sharing.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

void share_residual(std::span<const std::span<const float>> old, int num_ranks, int rank,
                    std::int64_t first, std::span<float> mine) {
  for (const std::span<const float>& one : old) ATOLL_CHECK_EQ(one.size(), mine.size());
  const auto now = static_cast<std::size_t>(num_ranks);
  const auto me = static_cast<std::size_t>(rank);
  if (now >= old.size()) {
    if (me < old.size()) {
      std::copy(old[me].begin(), old[me].end(), mine.begin());
    } else {
      std::fill(mine.begin(), mine.end(), 0.0F);
    }
    return;
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    double rest = 0;
    for (const std::span<const float>& one : old) rest += static_cast<double>(one[i]);
    const auto block = static_cast<std::size_t>(first + static_cast<std::int64_t>(i)) /
                       static_cast<std::size_t>(kBlockElements);
    const std::size_t number = (me + now - block % now) % now;  // of this rank's float; 0: largest
    for (std::size_t before = 0; before < number; ++before) {
      rest -= static_cast<double>(static_cast<float>(rest));
    }
    mine[i] = static_cast<float>(rest);
  }
}

}  // namespace atl::parallel
