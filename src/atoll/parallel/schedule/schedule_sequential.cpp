#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

std::vector<Action> schedule_forward(std::size_t num_stages) {
  const std::vector<ChunkPass> passes = {{ChunkPass::Kind::kForward}};
  return chunk_actions(whole_model(num_stages), 0, passes);
}

std::vector<Action> schedule_sequential(std::size_t num_stages, std::int64_t num_micro_batches) {
  std::vector<ChunkPass> passes;
  for (std::int64_t i = 0; i < num_micro_batches; ++i) {
    passes.push_back({ChunkPass::Kind::kForward, 0, i});
    passes.push_back({ChunkPass::Kind::kBackward, 0, i});
  }
  return chunk_actions(whole_model(num_stages, num_micro_batches), 0, passes);
}

}  // namespace atl::parallel
