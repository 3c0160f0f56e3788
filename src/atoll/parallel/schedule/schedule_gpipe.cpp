#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

std::vector<Action> schedule_gpipe(const Pipeline& pipeline, int rank) {
  ATOLL_CHECK_EQ(pipeline.num_chunks(), static_cast<std::size_t>(pipeline.num_ranks));
  const auto chunk = static_cast<std::size_t>(rank);
  std::vector<ChunkPass> passes;
  // Backward goes in the order of micro-batches too, not in reverse as in the paper: gradients are
  // then added up in the same order as by any other schedule.
  for (const ChunkPass::Kind kind : {ChunkPass::Kind::kForward, ChunkPass::Kind::kBackward}) {
    for (std::int64_t i = 0; i < pipeline.num_micro_batches; ++i)
      passes.push_back({kind, chunk, i});
  }
  return chunk_actions(pipeline, rank, passes);
}

}  // namespace atl::parallel
