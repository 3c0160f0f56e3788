#include "atoll/plan/pipeline_time.h"

#include <gtest/gtest.h>

#include "atoll/parallel/schedule/schedules.h"

namespace atl::plan {

namespace {

PipelineTime time_of(const char* schedule, int ranks, std::int64_t micro_batches,
                     const std::vector<StageSeconds>& stages, double transfer = 0,
                     PipelineHosts hosts = {}) {
  const parallel::PipelineSchedule& how = parallel::find_schedule(schedule);
  parallel::Pipeline pipeline = {ranks, micro_batches, {}, how.folded};
  for (std::size_t i = 0; i <= stages.size(); ++i) pipeline.bounds.push_back(i);
  if (hosts.host_of.empty()) {
    for (int r = 0; r < ranks; ++r) hosts.host_of.push_back(r);
  }
  return time_pipeline(pipeline, parallel::actions_of_ranks(how, pipeline), stages,
                       std::vector<double>(static_cast<std::size_t>(ranks), transfer), hosts);
}

TEST(PipelineTime, IsThatOfTheFormulas) {
  const std::vector<StageSeconds> even(4, {1, 1, 1});
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const PipelineTime time = time_of(schedule, 4, 8, even);
    EXPECT_NEAR(time.seconds, (8 + 3) * 3, 1e-9) << schedule;
    EXPECT_NEAR(time.bubble(), 3.0 / 11, 1e-9) << schedule;
  }
  EXPECT_LT(time_of("zb-h1", 4, 8, even).seconds, (8 + 3) * 3);
}

TEST(PipelineTime, OfUnevenStagesIsBoundByTheSlowest) {
  const std::vector<StageSeconds> stages = {{1, 1, 0}, {3, 3, 0}};
  // One F before the slow rank begins, one B after it has ended.
  EXPECT_NEAR(time_of("1f1b", 2, 6, stages).seconds, 6 * 6 + 2, 1e-9);
}

TEST(PipelineTime, CountsTransfersThatNothingHides) {
  const std::vector<StageSeconds> even(2, {1, 1, 1});
  // Two micro-batches under gpipe: one transfer down, one up, all others beside passes.
  EXPECT_NEAR(time_of("gpipe", 2, 2, even, 0.25).seconds, (2 + 1) * 3 + 0.5, 1e-9);
}

TEST(PipelineTime, IsShorterWhereFewRanksOfAHostCompute) {
  const std::vector<StageSeconds> even(2, {1, 1, 1});
  PipelineHosts hosts = {.host_of = {0, 0}, .copies = 1, .speedups = {2, 1}};
  // One micro-batch: never two ranks at work.
  EXPECT_NEAR(time_of("gpipe", 2, 1, even, 0, hosts).seconds, 3, 1e-9);
  hosts.copies = 2;
  EXPECT_NEAR(time_of("gpipe", 2, 1, even, 0, hosts).seconds, 6, 1e-9);
}

}  // namespace

}  // namespace atl::plan
