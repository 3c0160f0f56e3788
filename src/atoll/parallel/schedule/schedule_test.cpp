#include "atoll/parallel/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "atoll/base/error.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"

namespace atl::parallel {
namespace {

using Lists = std::vector<std::vector<Action>>;
using Generator = std::function<std::vector<Action>(const Pipeline&, int)>;

Lists all_ranks(const Pipeline& pipeline, const Generator& generator) {
  Lists lists;
  for (int r = 0; r < pipeline.num_ranks; ++r) lists.push_back(generator(pipeline, r));
  return lists;
}

// One chunk a rank, of one to three stages.
Pipeline some_pipeline() {
  Pipeline pipeline;
  pipeline.num_ranks = *rc::gen::inRange(1, 7);
  pipeline.num_micro_batches = *rc::gen::inRange<std::int64_t>(1, 13);
  pipeline.bounds = {0};
  for (int r = 0; r < pipeline.num_ranks; ++r) {
    pipeline.bounds.push_back(pipeline.bounds.back() + *rc::gen::inRange<std::size_t>(1, 4));
  }
  return pipeline;
}

std::string fault_of(const Pipeline& pipeline, const Lists& lists) {
  try {
    simulate_pipeline(pipeline, lists);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names(std::span<const Action> actions) {
  std::vector<std::string> names;
  for (const Action& action : actions) {
    names.push_back(fmt::format("{}{}", action_name(action.kind), action.stage));
  }
  return names;
}

TEST(Schedule, SequentialIsForwardThenBackwardOfEachStage) {
  EXPECT_THAT(names(schedule_sequential(3)),
              testing::ElementsAre("F0", "F1", "F2", "B2", "W2", "B1", "W1", "B0", "W0"));
  EXPECT_THAT(names(schedule_forward(3)), testing::ElementsAre("F0", "F1", "F2"));
}

TEST(Schedule, AStagesBAndWAreOnePass) {
  const Schedule schedule(schedule_sequential(2), {false, true});
  ASSERT_EQ(schedule.passes().size(), 4u);
  const StagePass& head = schedule.passes()[2];
  EXPECT_EQ(head.stage, 1u);
  EXPECT_EQ(head.first_tick, 2);
  EXPECT_EQ(head.last_tick, 3);
  EXPECT_EQ(schedule.tick(ActionKind::kBackwardWeight, 0, 0), 5);
}

TEST(Schedule, GradientsBeginInForwardWhereTheFootprintSaysSo) {
  const Schedule schedule(schedule_sequential(3), {false, false, true});
  const std::vector<std::size_t> head = {2}, block = {1}, tied = {0, 2};
  EXPECT_EQ(schedule.first_gradients(head).number, 2u);
  EXPECT_EQ(schedule.first_gradients(block).number, 4u);
  EXPECT_EQ(schedule.first_gradients(tied).number, 2u);
  EXPECT_EQ(schedule.last_gradients(head).number, 3u);
  EXPECT_EQ(schedule.last_gradients(tied).number, 5u);
  EXPECT_FALSE(schedule.passes()[2].completes_gradients);
  EXPECT_TRUE(schedule.passes()[3].completes_gradients);
  EXPECT_EQ(Schedule(schedule_sequential(3)).first_gradients(head).number, 3u);
}

TEST(Schedule, OnlyTheLastMicroBatchCompletesGradients) {
  const Schedule schedule(schedule_gpipe(whole_model(2, 3), 0), {false, true});
  std::vector<std::int64_t> complete;
  for (const StagePass& pass : schedule.passes()) {
    if (pass.completes_gradients) complete.push_back(pass.micro_batch);
  }
  EXPECT_THAT(complete, testing::ElementsAre(2, 2));
  EXPECT_EQ(schedule.num_micro_batches(), 3);
  EXPECT_EQ(schedule.num_stages(), 2u);
}

RC_GTEST_PROP(ScheduleProperty, SequentialIsValidAndNeedsOneSlot, ()) {
  const auto stages = *rc::gen::inRange<std::size_t>(1, 9);
  const auto count = *rc::gen::inRange<std::int64_t>(1, 9);
  const Lists lists = {schedule_sequential(stages, count)};
  const PipelineUse use = simulate_pipeline(whole_model(stages, count), lists);
  RC_ASSERT(use.slots == std::vector<std::size_t>(stages, 1));
  RC_ASSERT(use.idle_time.front() == 0);
}

RC_GTEST_PROP(ScheduleProperty, GPipeHoldsAllMicroBatches, ()) {
  const Pipeline pipeline = some_pipeline();
  const PipelineUse use = simulate_pipeline(pipeline, all_ranks(pipeline, schedule_gpipe));
  const auto count = static_cast<std::size_t>(pipeline.num_micro_batches);
  RC_ASSERT(use.slots == std::vector<std::size_t>(pipeline.num_stages(), count));
}

RC_GTEST_PROP(ScheduleProperty, OneFOneBHoldsNoMoreThanTheRanksThatFollow, ()) {
  const Pipeline pipeline = some_pipeline();
  const PipelineUse use = simulate_pipeline(pipeline, all_ranks(pipeline, schedule_1f1b));
  for (std::size_t stage = 0; stage < pipeline.num_stages(); ++stage) {
    const auto rank = static_cast<std::int64_t>(pipeline.chunk_of(stage));
    const std::int64_t most = std::min(pipeline.num_ranks - rank, pipeline.num_micro_batches);
    RC_ASSERT(use.slots[stage] == static_cast<std::size_t>(most));
  }
}

// Both fill and drain the pipeline once: (m + p - 1) passes of the same length.
RC_GTEST_PROP(ScheduleProperty, BothTakeAsLongWithEqualChunks, ()) {
  Pipeline pipeline = some_pipeline();
  for (std::size_t i = 0; i < pipeline.bounds.size(); ++i) pipeline.bounds[i] = i;
  const double slots = static_cast<double>(pipeline.num_micro_batches) + pipeline.num_ranks - 1;
  for (const Generator& generator : {Generator(schedule_gpipe), Generator(schedule_1f1b)}) {
    RC_ASSERT(simulate_pipeline(pipeline, all_ranks(pipeline, generator)).duration == slots * 3);
  }
}

// Interleaved chunks: rank r has chunks r and r + p, whose order is not given by any generator yet.
TEST(Schedule, ChunksOfARankMayInterleave) {
  using Kind = ChunkPass::Kind;
  const Pipeline pipeline = {2, 1, {0, 1, 2, 3, 4}};
  const std::vector<ChunkPass> first = {
      {Kind::kForward, 0}, {Kind::kForward, 2}, {Kind::kBackward, 2}, {Kind::kBackward, 0}};
  const std::vector<ChunkPass> second = {
      {Kind::kForward, 1}, {Kind::kForward, 3}, {Kind::kBackward, 3}, {Kind::kBackward, 1}};
  const Lists lists = {chunk_actions(pipeline, 0, first), chunk_actions(pipeline, 1, second)};
  EXPECT_EQ(simulate_pipeline(pipeline, lists).duration, 12);
}

// W after all B, as zero-bubble schedules delay it: what it needs is held until then.
TEST(Schedule, ADelayedWHoldsItsMicroBatch) {
  using Kind = ChunkPass::Kind;
  const std::vector<ChunkPass> passes = {
      {Kind::kForward, 0, 0},       {Kind::kBackwardInput, 0, 0},  {Kind::kForward, 0, 1},
      {Kind::kBackwardInput, 0, 1}, {Kind::kBackwardWeight, 0, 0}, {Kind::kBackwardWeight, 0, 1}};
  const Pipeline pipeline = whole_model(2, 2);
  const Lists lists = {chunk_actions(pipeline, 0, passes)};
  EXPECT_THAT(simulate_pipeline(pipeline, lists).slots, testing::ElementsAre(2, 2));
  const Schedule schedule(lists.front());
  EXPECT_FALSE(schedule.passes()[2].makes_gradients);  // the B of stage 1 alone
}

// Each way to break a list is found, whatever the pipeline.
RC_GTEST_PROP(ScheduleProperty, AMissingActionIsFound, ()) {
  const Pipeline pipeline = some_pipeline();
  Lists lists = all_ranks(pipeline, schedule_1f1b);
  std::vector<Action>& list = lists[*rc::gen::inRange<std::size_t>(0, lists.size())];
  list.erase(list.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(list)));
  RC_ASSERT(!fault_of(pipeline, lists).empty());
}

RC_GTEST_PROP(ScheduleProperty, ARepeatedActionIsFound, ()) {
  const Pipeline pipeline = some_pipeline();
  Lists lists = all_ranks(pipeline, schedule_gpipe);
  std::vector<Action>& list = lists[*rc::gen::inRange<std::size_t>(0, lists.size())];
  const auto at = *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(list));
  list.push_back(list[static_cast<std::size_t>(at)]);
  RC_ASSERT(!fault_of(pipeline, lists).empty());
}

TEST(Schedule, AWBeforeItsBIsFound) {
  Lists lists = {schedule_sequential(2)};
  std::swap(lists[0][2], lists[0][3]);
  EXPECT_THAT(fault_of(whole_model(2), lists), testing::HasSubstr("comes before its B"));
}

TEST(Schedule, ASendToAWrongRankIsFound) {
  const Pipeline pipeline = {3, 1, {0, 1, 2, 3}};
  Lists lists = all_ranks(pipeline, schedule_1f1b);
  for (Action& action : lists[0]) {
    if (action.kind == ActionKind::kSendOutput) action.peer = 2;
  }
  EXPECT_THAT(fault_of(pipeline, lists), testing::HasSubstr("wrong rank"));
}

// Each rank first wants a gradient or an input that its neighbour makes only afterwards.
TEST(Schedule, RanksThatWaitForEachOtherAreFound) {
  const Pipeline pipeline = {2, 2, {0, 1, 2}};
  const Lists lists = {schedule_gpipe(pipeline, 0), schedule_1f1b(pipeline, 1)};
  EXPECT_EQ(fault_of(pipeline, lists), "");
  Lists stuck = {schedule_sequential(1, 2), schedule_gpipe(pipeline, 1)};
  const std::vector<ChunkPass> in_turn = {{ChunkPass::Kind::kForward, 0, 0},
                                          {ChunkPass::Kind::kBackward, 0, 0},
                                          {ChunkPass::Kind::kForward, 0, 1},
                                          {ChunkPass::Kind::kBackward, 0, 1}};
  stuck[0] = chunk_actions(pipeline, 0, in_turn);
  EXPECT_THAT(fault_of(pipeline, stuck), testing::HasSubstr("waits forever"));
}

TEST(Schedule, InputsThatArriveInAnotherOrderAreFound) {
  const Pipeline pipeline = {2, 2, {0, 1, 2}};
  Lists lists = all_ranks(pipeline, schedule_gpipe);
  for (Action& action : lists[0]) {
    action.micro_batch = 1 - action.micro_batch;
  }
  EXPECT_THAT(fault_of(pipeline, lists), testing::HasSubstr("for another action"));
}

}  // namespace
}  // namespace atl::parallel
