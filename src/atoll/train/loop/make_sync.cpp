#include "atoll/train/loop/sync.h"

#include "atoll/train/loop/sync_data_parallel.h"
#include "atoll/train/loop/sync_islands.h"
#include "atoll/train/loop/sync_servers.h"

namespace atl::train {

std::unique_ptr<Sync> make_sync(TrainRun& run) {
  if (run.config.sync.mode == "ps") return std::make_unique<ServerSync>(run);
  if (run.is_island()) return std::make_unique<IslandSync>(run);
  return std::make_unique<DataParallelSync>(run);
}

void account(TrainRun& run, const StepResult& result, std::int64_t step) {
  Position& position = run.position;
  const bool is_nonfinite = !result.nonfinite_samples.empty();
  if (is_nonfinite || result.taken()) {
    run.skipped_in_a_row = is_nonfinite ? run.skipped_in_a_row + 1 : 0;
  }
  if (!result.has_targets) ++position.without_loss;
  position.tokens += (step - position.step) * result.targets;
  position.step = step;
  if (result.taken()) {
    ++position.line_steps;
    position.line_loss += result.loss;
    if (result.preferences) position.line_pairs += *result.preferences;
  }
  if (run.tell_step) run.tell_step(position.step);
}

}  // namespace atl::train
