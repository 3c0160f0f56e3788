// What the ranks of a step must know of each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <mutex>

#include "atoll/comm/mesh.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kContext = 16;
constexpr std::int64_t kRows = 2;

// Makes one token's row of the embedding bad, which sample 5 alone reads.
void poison(testing::Bench& bench) {
  std::replace(bench.tokens.values.begin(), bench.tokens.values.end(), 60, 59);
  bench.tokens[5 * kContext + 3] = 60;
  for (const nn::Param* param : bench.state.store().params()) {
    if (param->name != "model.embed_tokens.weight") continue;
    param->value.rows(60, 61).data<float>()[7] = std::nanf("");
    return;
  }
  FAIL() << "no embedding";
}

TEST(StepOfRanks, ANaNThatOneRankMeetsIsNamedByAllAndChangesNothing) {
  comm::run_threads(3, {.timeout_s = 60}, [](comm::World& world) {
    StateOptions options = {
        .model = testing::tiny_model("llama"), .micro_batch = kRows, .context = kContext};
    options.data_parallel = {
        .zero = parallel::Zero::kOptimizer, .num_ranks = 3, .rank = world.rank(), .rounds = 2};
    comm::Mesh mesh(world, {{"shard", 3}});
    testing::Bench bench(options, 1);
    bench.state.connect(world.all(), mesh.group("shard"), nullptr);
    poison(bench);
    const std::string values = bench.values();
    const parallel::MicroBatchPlan plan(testing::Bench::kSamples / kRows, 3);
    const std::vector<std::int64_t> mine = plan.of(world.rank());
    std::size_t next = 0;
    const StepResult result = take_step(
        bench.state, bench.run.stream, {.num_micro_batches = 4, .lr = 0.01, .plan = &plan}, [&] {
          const std::int64_t at = kRows * mine.at(next++);
          return Batch{bench.tokens.view().rows(at, at + kRows),
                       bench.targets.view().rows(at, at + kRows), 16 + at};
        });
    EXPECT_TRUE(std::isnan(result.loss));
    EXPECT_THAT(result.nonfinite_samples, ElementsAre(21));
    bench.state.store().settle();
    EXPECT_EQ(bench.values(), values);
  });
}

// Rank 2 is lost before it has its copy of rank 3's gradients. Rank 0 has no need of either, but if
// it made its update those that are left could not make theirs.
TEST(StepOfRanks, NobodyUpdatesBeforeAllCan) {
  std::latch rank_0_has_its_copy(1);
  std::mutex mutex;
  std::vector<StepProgress::Phase> phases;
  const auto train = [&](comm::World& world) {
    StateOptions options = {
        .model = testing::tiny_model("llama"), .micro_batch = kRows, .context = kContext};
    options.data_parallel = {
        .zero = parallel::Zero::kGradients, .num_ranks = 4, .rank = world.rank()};
    options.replicate = true;
    comm::Mesh mesh(world, {{"shard", 4}});
    testing::Bench bench(options, 1);
    bench.state.connect(world.all(), mesh.group("shard"), nullptr);
    world.listen([&](const comm::RecordedCall& call) {
      if (world.rank() == 0 && call.op == comm::Op::kExchange) rank_0_has_its_copy.count_down();
      const bool is_norm = call.op == comm::Op::kAllGather && call.group == "shard" && !call.beside;
      if (world.rank() != 2 || !is_norm) return;
      rank_0_has_its_copy.wait();
      throw make_error(ErrorKind::kIo, "this rank is lost");
    });
    const parallel::MicroBatchPlan plan(4, 4);
    StepProgress progress;
    try {
      take_step(bench.state, bench.run.stream,
                {.num_micro_batches = 4, .lr = 0.01, .plan = &plan, .progress = &progress}, [&] {
                  const std::int64_t at = kRows * world.rank();
                  return Batch{bench.tokens.view().rows(at, at + kRows),
                               bench.targets.view().rows(at, at + kRows), at};
                });
      ADD_FAILURE() << "rank " << world.rank() << " misses nobody";
    } catch (const Error&) {
      world.listen({});
      const std::lock_guard lock(mutex);
      phases.push_back(progress.phase);
      throw;
    }
  };
  EXPECT_THROW(comm::run_threads(4, {.timeout_s = 60}, train), Error);
  EXPECT_EQ(phases.size(), 4U);
  EXPECT_EQ(std::ranges::count(phases, StepProgress::Phase::kCommitted), 0);
}

}  // namespace
}  // namespace atl::train
