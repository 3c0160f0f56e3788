// Ranks of a pipeline against one rank: whatever the schedule, losses and gradients have the same
// bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "atoll/comm/mesh.h"
#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/tcp/world.h"
#include "atoll/comm/testing/worlds.h"
#include "atoll/parallel/schedule/pipeline_testing.h"

namespace atl::parallel {
namespace {

using comm::test::Backend;

std::vector<comm::Axis> pipeline_axis(int ranks) {
  return {{.name = "pp", .size = ranks, .point_to_point = true}};
}

// One rank of a pipeline takes part in a world of pipelines alone.
void train_rank(comm::World& world, const ModelSetup& setup, const PipelineSchedule& schedule,
                std::int64_t micro_batches, Outcome& outcome, std::mutex& mutex) {
  const int ranks = world.size();
  comm::Mesh mesh(world, pipeline_axis(ranks));
  const Pipeline pipeline =
      some_pipeline(schedule, ranks, micro_batches, build(setup)->stages.size());
  const auto lists = actions_of_ranks(schedule, pipeline);
  Rank rank(setup, &pipeline, world.rank(), rank_schedule(pipeline, lists, world.rank()));
  rank.runner().connect(mesh.group("pp"));
  Outcome mine;
  rank.train(Batches(micro_batches).all(), static_cast<std::size_t>(micro_batches), mine);
  const std::lock_guard lock(mutex);
  outcome.loss += mine.loss;
  outcome.evaluated += mine.evaluated;
  for (const auto& [name, gradient] : mine.gradients) {
    EXPECT_TRUE(outcome.gradients.emplace(name, gradient).second) << name;
  }
}

Outcome pipelined(Backend backend, const ModelSetup& setup, const PipelineSchedule& schedule,
                  int ranks, std::int64_t micro_batches) {
  Outcome outcome;
  std::mutex mutex;
  comm::test::run(backend, ranks, {.timeout_s = 60}, [&](comm::World& world) {
    train_rank(world, setup, schedule, micro_batches, outcome, mutex);
  });
  return outcome;
}

void expect_same(const Outcome& outcome, const Outcome& expected) {
  EXPECT_EQ(outcome.loss, expected.loss);
  EXPECT_EQ(outcome.evaluated, expected.evaluated);
  EXPECT_EQ(outcome.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const auto at = outcome.gradients.find(name);
    EXPECT_TRUE(at != outcome.gradients.end() && at->second == gradient) << name;
  }
}

class PipelineRanks : public testing::TestWithParam<std::tuple<int, nn::RecomputeMode>> {};

TEST_P(PipelineRanks, ChangeNoBit) {
  const auto [ranks, recompute] = GetParam();
  const std::int64_t micro_batches = 2 * ranks;
  for (const char* family : {"llama", "gpt2"}) {
    const ModelSetup setup = {.family = family, .recompute = recompute};
    const Outcome expected = one_rank(setup, micro_batches);
    ASSERT_GT(expected.loss, 0);
    for (const PipelineSchedule& schedule : pipeline_schedules()) {
      SCOPED_TRACE(fmt::format("{} {}", family, schedule.name));
      expect_same(pipelined(Backend::kThreads, setup, schedule, ranks, micro_batches), expected);
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<int, nn::RecomputeMode>>& info) {
  const auto [ranks, recompute] = info.param;
  const std::string ending = recompute == nn::RecomputeMode::kNone   ? ""
                             : recompute == nn::RecomputeMode::kFull ? "RecomputeAll"
                                                                     : "RecomputeSome";
  return std::to_string(ranks) + ending;
}

INSTANTIATE_TEST_SUITE_P(Ranks, PipelineRanks,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(nn::RecomputeMode::kNone,
                                                          nn::RecomputeMode::kSelective,
                                                          nn::RecomputeMode::kFull)),
                         name_of);

// As between machines: every transfer is cut into messages of 4 KiB.
TEST(Pipelined, ChangeNoBitByMessages) {
  const Outcome expected = one_rank({}, 8);
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    SCOPED_TRACE(schedule.name);
    expect_same(pipelined(Backend::kMessages, {}, schedule, 4, 8), expected);
  }
}

TEST(Pipelined, MayHaveMoreMicroBatchesThanTwiceTheRanks) {
  const Outcome expected = one_rank({}, 13);
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-v"}) {
    SCOPED_TRACE(name);
    expect_same(pipelined(Backend::kThreads, {}, find_schedule(name), 3, 13), expected);
  }
}

// Ranks of this process over sockets, as between machines.
TEST(Pipelined, ChangeNoBitOverTcp) {
  const Outcome expected = one_rank({}, 6);
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    SCOPED_TRACE(schedule.name);
    Outcome outcome;
    std::mutex mutex;
    comm::RendezvousServer server("127.0.0.1", 0);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const auto world = comm::open_tcp({.rank = rank,
                                           .size = 3,
                                           .rendezvous = server.address(),
                                           .address = {},
                                           .generation = 0,
                                           .shared_memory = false,
                                           .connect_timeout_s = 60},
                                          {.timeout_s = 60, .local_ranks = 0});
        train_rank(*world, {}, schedule, 6, outcome, mutex);
      });
    }
    for (std::thread& thread : threads) thread.join();
    expect_same(outcome, expected);
  }
}

// A rank that fails in the middle of a step ends the others, whatever they wait for, and they say
// why.
TEST(Pipelined, ARankThatFailsEndsTheOthers) {
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    for (const Backend backend : {Backend::kThreads, Backend::kMessages}) {
      SCOPED_TRACE(schedule.name);
      const auto errors =
          comm::test::errors_of(backend, 3, {.timeout_s = 600}, [&](comm::World& world) {
            comm::Mesh mesh(world, pipeline_axis(3));
            const Pipeline pipeline = some_pipeline(schedule, 3, 6, build({})->stages.size());
            const auto lists = actions_of_ranks(schedule, pipeline);
            Rank rank({}, &pipeline, world.rank(), rank_schedule(pipeline, lists, world.rank()));
            rank.runner().connect(mesh.group("pp"));
            rank.runner().listen([&](const PassEvent& event) {
              if (world.rank() == 1 && event.pass.micro_batch == 3) {
                throw user_error("this rank breaks");
              }
            });
            const Batches batches(6);
            rank.runner().train(rank.run(), batches.all());
          });
      EXPECT_EQ(errors[1], "this rank breaks");
      for (const int other : {0, 2}) {
        EXPECT_THAT(errors[static_cast<std::size_t>(other)],
                    testing::HasSubstr("this rank breaks"));
      }
    }
  }
}

// Every edge between chunks on different ranks is sent once each way, for each micro-batch.
TEST(Pipelined, SendsEachEdgeOnceEachWay) {
  constexpr std::uint64_t kEdge = kBatch * kLength * 12 * sizeof(float);
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    SCOPED_TRACE(schedule.name);
    std::uint64_t sent = 0;
    std::mutex mutex;
    comm::run_threads(3, {.timeout_s = 60}, [&](comm::World& world) {
      comm::Mesh mesh(world, pipeline_axis(3));
      const Pipeline pipeline = some_pipeline(schedule, 3, 6, build({})->stages.size());
      const auto lists = actions_of_ranks(schedule, pipeline);
      Rank rank({}, &pipeline, world.rank(), rank_schedule(pipeline, lists, world.rank()));
      rank.runner().connect(mesh.group("pp"));
      const Batches batches(6);
      rank.runner().train(rank.run(), batches.all());
      const std::lock_guard lock(mutex);
      sent += mesh.group("pp").traffic().sent;
    });
    // A V keeps one of its edges on the last rank.
    const std::uint64_t edges =
        3U * static_cast<unsigned>(schedule.min_chunks) - 1 - (schedule.folded ? 1 : 0);
    EXPECT_EQ(sent, edges * 2 * 6 * kEdge);
  }
}

}  // namespace
}  // namespace atl::parallel
