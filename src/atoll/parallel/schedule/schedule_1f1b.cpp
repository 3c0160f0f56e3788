#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

std::vector<Action> schedule_1f1b(const Pipeline& pipeline, int rank) {
  ATOLL_CHECK_EQ(pipeline.num_chunks(), static_cast<std::size_t>(pipeline.num_ranks));
  const auto chunk = static_cast<std::size_t>(rank);
  const std::int64_t count = pipeline.num_micro_batches;
  // So many forward passes before the first backward pass: the ranks after this one need them to
  // have work until the first gradient comes back.
  const std::int64_t warm_up = std::min<std::int64_t>(count, pipeline.num_ranks - 1 - rank);
  std::vector<ChunkPass> passes;
  for (std::int64_t i = 0; i < count + warm_up; ++i) {
    if (i < count) passes.push_back({ChunkPass::Kind::kForward, chunk, i});
    if (i >= warm_up) passes.push_back({ChunkPass::Kind::kBackward, chunk, i - warm_up});
  }
  return chunk_actions(pipeline, rank, passes);
}

}  // namespace atl::parallel
