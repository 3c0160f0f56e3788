#include "atoll/train/ranks/stop_request.h"

#include <algorithm>
#include <cstdint>

namespace atl::train {

StopRequest::StopRequest(bool is_told)
    : guard_(is_told ? "the run saves after this step and ends" : "") {}

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
    agreed_save_ |= fact.save_wanted != 0;
  }
}

bool StopRequest::take_save(const Ranks& ranks) {
  const bool is_wanted = ranks.is_alone() ? wants_save_here() : agreed_save_;
  if (is_wanted) num_saves_ = num_save_requests();
  agreed_save_ = false;
  return is_wanted;
}

}  // namespace atl::train
