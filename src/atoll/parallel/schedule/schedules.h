#pragma once

// All generators of schedules, one file each. A generator is a pure function from a Pipeline and a
// rank to the actions of that rank; simulate_pipeline() says what they need and whether they fit
// together.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/parallel/schedule/pipeline.h"

namespace atl::parallel {

/// Forward through all stages: evaluation and generation. One rank.
std::vector<Action> schedule_forward(std::size_t num_stages);
/// One micro-batch after the other: forward through all stages, then B and W of each, the last
/// stage first. One rank.
std::vector<Action> schedule_sequential(std::size_t num_stages, std::int64_t num_micro_batches = 1);
/// All forward passes, then all backward passes (Huang et al. 2019, "GPipe"). Holds the activations
/// of all micro-batches at once. One chunk a rank.
std::vector<Action> schedule_gpipe(const Pipeline& pipeline, int rank);
/// One forward pass, one backward pass in turn (Narayanan et al. 2019, "PipeDream"; in the form
/// with a flush, Narayanan et al. 2021, 2.2.1). Takes as long as GPipe and holds the activations of
/// at most num_ranks - rank micro-batches. One chunk a rank.
std::vector<Action> schedule_1f1b(const Pipeline& pipeline, int rank);
/// 1F1B over several chunks a rank, not folded (Narayanan et al. 2021, 2.2.2): the pipeline fills
/// and drains in 1 / chunks of the time. The first rank holds (chunks - 1) p + 2 p - 1 passes
/// through chunks. One chunk a rank: 1F1B; otherwise the micro-batches must be a multiple of ranks.
std::vector<Action> schedule_interleaved(const Pipeline& pipeline, int rank);
/// 1F1B with weight passes held back until the rank would be idle (Qi et al. 2023, "Zero bubble
/// pipeline parallelism", ZB-H1): where F, B and W take the same time, a third of its bubble.
/// Every rank holds the activations of at most num_ranks micro-batches, as 1F1B's first rank does.
/// One chunk a rank.
std::vector<Action> schedule_zb_h1(const Pipeline& pipeline, int rank);
/// Two chunks a rank, folded, so that the first rank has the loss (Qi et al. 2024, "Pipeline
/// parallelism with controllable memory"; the order of passes is that of "Zero bubble pipeline
/// parallelism", ZB-V). Every rank holds at most 2 num_ranks passes through chunks, as much as
/// 1F1B's first rank, and where F, B and W take the same time, ranks idle only while the pipeline
/// fills and drains.
std::vector<Action> schedule_zb_v(const Pipeline& pipeline, int rank);

/// A generator by the name that users know, and the pipelines it can serve.
struct PipelineSchedule {
  const char* name;
  std::vector<Action> (*actions)(const Pipeline& pipeline, int rank);
  int min_chunks, max_chunks;  ///< a rank
  bool folded = false;
  bool whole_rounds = false;  ///< with several chunks, micro-batches are a multiple of ranks
};

/// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v".
std::span<const PipelineSchedule> pipeline_schedules();
/// Throws Error(kUser), naming the schedules there are.
const PipelineSchedule& find_schedule(const std::string& name);
/// Throws Error(kUser) when the schedule cannot carry so many micro-batches through a model of
/// `num_stages` stages on these ranks: what is wrong, and what would work.
void check_schedule(const PipelineSchedule& schedule, int num_ranks, int chunks_per_rank,
                    std::size_t num_stages, std::int64_t num_micro_batches);
/// The lists of all ranks.
std::vector<std::vector<Action>> actions_of_ranks(const PipelineSchedule& schedule,
                                                  const Pipeline& pipeline);

}  // namespace atl::parallel
