#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

std::vector<Action> schedule_zb_h1(const Pipeline& pipeline, int rank) {
  using Kind = ChunkPass::Kind;
  ATOLL_CHECK_EQ(pipeline.num_chunks(), static_cast<std::size_t>(pipeline.num_ranks));
  const auto chunk = static_cast<std::size_t>(rank);
  const std::int64_t count = pipeline.num_micro_batches;
  const std::int64_t warm_up = std::min<std::int64_t>(count, pipeline.num_ranks - 1 - rank);
  // So many weight passes are held back: the rank may keep as many micro-batches as the first rank
  // does, and later ranks have fewer forward passes ahead. They fill the drain.
  const std::int64_t delay = rank;
  std::vector<ChunkPass> passes;
  for (std::int64_t i = 0; i < count + warm_up + delay; ++i) {
    const std::int64_t input = i - warm_up, weight = input - delay;
    if (i < count) passes.push_back({Kind::kForward, chunk, i});
    if (input >= 0 && input < count) passes.push_back({Kind::kBackwardInput, chunk, input});
    if (weight >= 0) passes.push_back({Kind::kBackwardWeight, chunk, weight});
  }
  return chunk_actions(pipeline, rank, passes);
}

}  // namespace atl::parallel
