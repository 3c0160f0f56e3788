#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

namespace {

// The order of a rank's passes in one direction: one chunk's passes of as many micro-batches as
// there are ranks, then those of the next chunk, then on to the next micro-batches.
ChunkPass pass_number(const Pipeline& pipeline, int rank, std::int64_t number, bool backward) {
  const std::int64_t ranks = pipeline.num_ranks;
  const auto chunks = static_cast<std::int64_t>(pipeline.chunks_per_rank());
  const std::int64_t group = number / (ranks * chunks), within = number % (ranks * chunks);
  const std::int64_t index = backward ? chunks - 1 - within / ranks : within / ranks;
  return {backward ? ChunkPass::Kind::kBackward : ChunkPass::Kind::kForward,
          pipeline.chunk_on(rank, static_cast<std::size_t>(index)), group * ranks + within % ranks};
}

}  // namespace

std::vector<Action> schedule_interleaved(const Pipeline& pipeline, int rank) {
  ATOLL_CHECK(!pipeline.folded, "interleaved chunks lie in rows that all go the same way");
  if (pipeline.chunks_per_rank() == 1) return schedule_1f1b(pipeline, rank);
  const std::int64_t ranks = pipeline.num_ranks;
  ATOLL_CHECK(pipeline.num_micro_batches % ranks == 0, "{} micro-batches for {} ranks",
              pipeline.num_micro_batches, ranks);
  const auto chunks = static_cast<std::int64_t>(pipeline.chunks_per_rank());
  const std::int64_t count = pipeline.num_micro_batches * chunks;
  // Two for each rank that follows: a gradient takes as long to come back as an output took there,
  // and one forward pass fits beside each backward pass.
  const std::int64_t warm_up =
      std::min(count, (chunks - 1) * ranks + 2 * (ranks - 1 - std::int64_t{rank}));
  std::vector<ChunkPass> passes;
  for (std::int64_t i = 0; i < count + warm_up; ++i) {
    if (i < count) passes.push_back(pass_number(pipeline, rank, i, false));
    if (i >= warm_up) passes.push_back(pass_number(pipeline, rank, i - warm_up, true));
  }
  return chunk_actions(pipeline, rank, passes);
}

}  // namespace atl::parallel
