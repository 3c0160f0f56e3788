#include "atoll/train/stop_request.h"

#include <algorithm>

namespace atl::train {

int StopRequest::agree(const Ranks& ranks) {
  std::int64_t signal = std::max(agreed_, here());
  if (!ranks.is_alone()) {
    ranks.group().all_reduce({&signal, {Dtype::kI64, {1}}}, comm::Reduce::kMax);
  }
  return agreed_ = static_cast<int>(signal);
}

void StopRequest::hear(const std::vector<RankFacts>& facts) {
  agreed_ = 0;
  for (const RankFacts& fact : facts) {
    if (fact.signal != 0) agreed_ = static_cast<int>(fact.signal);
  }
}

}  // namespace atl::train
