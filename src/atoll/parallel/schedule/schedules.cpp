#include "atoll/parallel/schedule/schedules.h"

#include <fmt/ranges.h>

#include <array>

#include "atoll/base/error.h"

namespace atl::parallel {

namespace {

constexpr int kAnyChunks = 1 << 20;

constexpr std::array<PipelineSchedule, 5> kSchedules = {{
    {"gpipe", schedule_gpipe, 1, 1},
    {"1f1b", schedule_1f1b, 1, 1},
    {"interleaved", schedule_interleaved, 2, kAnyChunks, false, true},
    {"zb-h1", schedule_zb_h1, 1, 1},
    {"zb-v", schedule_zb_v, 2, 2, true},
}};

std::string chunks_text(const PipelineSchedule& schedule) {
  if (schedule.max_chunks == kAnyChunks) return fmt::format("{} or more", schedule.min_chunks);
  return std::to_string(schedule.min_chunks);
}

}  // namespace

std::span<const PipelineSchedule> pipeline_schedules() {
  return kSchedules;
}

const PipelineSchedule& find_schedule(const std::string& name) {
  std::vector<std::string> names;
  for (const PipelineSchedule& schedule : kSchedules) {
    if (schedule.name == name) return schedule;
    names.emplace_back(schedule.name);
  }
  throw user_error("there is no pipeline schedule \"{}\"; there are {}", name,
                   fmt::join(names, ", "));
}

void check_schedule(const PipelineSchedule& schedule, int num_ranks, int chunks_per_rank,
                    std::size_t num_stages, std::int64_t num_micro_batches) {
  const auto stages = static_cast<std::int64_t>(num_stages);
  if (num_ranks > stages) {
    throw user_error(
        "a pipeline of {} ranks needs as many stages, and the model has {}: embedding, blocks, "
        "final norm and head; use at most {} ranks",
        num_ranks, stages, stages);
  }
  if (chunks_per_rank < schedule.min_chunks || chunks_per_rank > schedule.max_chunks) {
    throw user_error("schedule {} takes {} chunks a rank, not {}", schedule.name,
                     chunks_text(schedule), chunks_per_rank);
  }
  const std::int64_t chunks = std::int64_t{num_ranks} * chunks_per_rank;
  if (chunks > stages) {
    throw user_error(
        "schedule {} cuts the model into {} chunks, {} a rank, and it has {} stages; use fewer "
        "ranks, {}",
        schedule.name, chunks, chunks_per_rank, stages,
        schedule.max_chunks > 2 ? "or fewer chunks" : "or a schedule with one chunk a rank: 1f1b");
  }
  if (num_micro_batches < num_ranks) {
    throw user_error(
        "a pipeline of {} ranks needs at least {} micro-batches a step so that all of them have "
        "work, and the step has {}; use smaller micro-batches, a larger batch, or fewer ranks",
        num_ranks, num_ranks, num_micro_batches);
  }
  if (schedule.whole_rounds && num_micro_batches % num_ranks != 0) {
    throw user_error(
        "schedule {} takes a multiple of {} micro-batches a step on {} ranks, not {}; use {}, or "
        "schedule 1f1b, which takes any number",
        schedule.name, num_ranks, num_ranks, num_micro_batches,
        (num_micro_batches + num_ranks - 1) / num_ranks * num_ranks);
  }
}

std::vector<std::vector<Action>> actions_of_ranks(const PipelineSchedule& schedule,
                                                  const Pipeline& pipeline) {
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < pipeline.num_ranks; ++rank) {
    lists.push_back(schedule.actions(pipeline, rank));
  }
  return lists;
}

}  // namespace atl::parallel
