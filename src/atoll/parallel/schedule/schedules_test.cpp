// The generators of pipeline schedules: valid on every rank, with the bubbles and the micro-batches
// in flight that their papers state.

#include "atoll/parallel/schedule/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>

#include "atoll/base/error.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"

namespace atl::parallel {
namespace {

using Lists = std::vector<std::vector<Action>>;

Pipeline equal_chunks(const PipelineSchedule& schedule, int ranks, std::int64_t micro_batches,
                      int chunks) {
  Pipeline pipeline = {ranks, micro_batches, {}, schedule.folded};
  for (int i = 0; i <= ranks * chunks; ++i) pipeline.bounds.push_back(static_cast<std::size_t>(i));
  return pipeline;
}

struct Case {
  const PipelineSchedule& schedule;
  int ranks = 1;
  std::int64_t micro_batches = 1;
  int chunks = 1;

  Pipeline pipeline() const { return equal_chunks(schedule, ranks, micro_batches, chunks); }
  PipelineUse simulate(const PassCosts& costs) const {
    return simulate_pipeline(pipeline(), actions_of_ranks(schedule, pipeline()), costs);
  }
  std::string to_string() const {
    return fmt::format("{} p={} m={} v={}", schedule.name, ranks, micro_batches, chunks);
  }
};

// All schedules for p up to 8, several m, up to 4 chunks; fewer micro-batches than ranks included,
// which users are refused but generators are not.
void for_all_cases(const std::function<void(const Case&)>& check) {
  for (const PipelineSchedule& schedule : pipeline_schedules()) {
    for (int p = 1; p <= 8; ++p) {
      for (const std::int64_t m : {1, p - 1, p, p + 1, 2 * p, 3 * p + 2, 4 * p}) {
        if (m < 1 || (schedule.whole_rounds && m % p != 0)) continue;
        for (int v = schedule.min_chunks; v <= std::min(schedule.max_chunks, 4); ++v) {
          const Case at{schedule, p, m, v};
          SCOPED_TRACE(at.to_string());
          check(at);
        }
      }
    }
  }
}

// Chunks of one to three stages, on a rank's number of chunks that the schedule takes.
Pipeline some_pipeline(const PipelineSchedule& schedule) {
  const int ranks = *rc::gen::inRange(1, 7);
  const int chunks = *rc::gen::inRange(schedule.min_chunks, std::min(schedule.max_chunks, 4) + 1);
  auto micro_batches = *rc::gen::inRange<std::int64_t>(1, 13);
  if (schedule.whole_rounds) micro_batches *= ranks;
  Pipeline pipeline = {ranks, micro_batches, {0}, schedule.folded};
  for (int c = 0; c < ranks * chunks; ++c) {
    pipeline.bounds.push_back(pipeline.bounds.back() + *rc::gen::inRange<std::size_t>(1, 4));
  }
  return pipeline;
}

const PipelineSchedule& some_schedule() {
  return pipeline_schedules()[*rc::gen::inRange<std::size_t>(0, pipeline_schedules().size())];
}

TEST(Pipeline, FoldedChunksGoBackToTheFirstRank) {
  const Pipeline folded = {3, 1, {0, 1, 2, 3, 4, 5, 6}, true};
  std::vector<int> ranks;
  for (std::size_t c = 0; c < folded.num_chunks(); ++c) ranks.push_back(folded.rank_of(c));
  EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_EQ(folded.rank_after(1), 2);
  EXPECT_EQ(folded.rank_after(2), -1);  // the next chunk is on the same rank
  EXPECT_EQ(folded.rank_before(3), -1);
  EXPECT_EQ(folded.rank_before(4), 2);
  EXPECT_EQ(folded.rank_after(5), -1);
  for (const bool is_folded : {false, true}) {
    const Pipeline pipeline = {3, 1, {0, 1, 2, 3, 4, 5, 6}, is_folded};
    for (std::size_t index = 0; index < 2; ++index) {
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(pipeline.rank_of(pipeline.chunk_on(rank, index)), rank);
      }
    }
  }
}

TEST(PipelineSchedules, AreValid) {
  for_all_cases([](const Case& at) { EXPECT_NO_THROW(at.simulate({})); });
}

RC_GTEST_PROP(PipelineSchedules, AreValidOverUnequalChunks, ()) {
  const PipelineSchedule& schedule = some_schedule();
  const Pipeline pipeline = some_pipeline(schedule);
  const Lists lists = actions_of_ranks(schedule, pipeline);
  simulate_pipeline(pipeline, lists);
}

RC_GTEST_PROP(PipelineSchedules, AMissingActionIsFound, ()) {
  const PipelineSchedule& schedule = some_schedule();
  const Pipeline pipeline = some_pipeline(schedule);
  Lists lists = actions_of_ranks(schedule, pipeline);
  std::vector<Action>& list = lists[*rc::gen::inRange<std::size_t>(0, lists.size())];
  list.erase(list.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(list)));
  RC_ASSERT_THROWS_AS(simulate_pipeline(pipeline, lists), Error);
}

// F and W of a stage take micro-batches in their order: gradients are added up as by one rank.
TEST(PipelineSchedules, AddGradientsInTheOrderOfMicroBatches) {
  for_all_cases([](const Case& at) {
    for (const std::vector<Action>& list : actions_of_ranks(at.schedule, at.pipeline())) {
      std::map<std::pair<ActionKind, std::size_t>, std::int64_t> next;
      for (const Action& action : list) {
        if (!is_compute(action.kind)) continue;
        const std::int64_t expected = next[{action.kind, action.stage}]++;
        EXPECT_EQ(action.micro_batch, expected);
      }
    }
  });
}

// Costs are a chunk's, so that a rank's are `chunks` times as much.
TEST(PipelineSchedules, BubblesAreTheFormulas) {
  for_all_cases([](const Case& at) {
    const std::string name = at.schedule.name;
    for (const PassCosts& costs :
         {PassCosts{1, 1, 1}, {2, 3, 1}, {3, 3, 2}, {2, 1, 1}, {4, 5, 3}}) {
      const PipelineUse use = at.simulate(costs);
      const double others = at.ranks - 1;
      const double all = costs.forward + costs.input + costs.weight;
      const double bubble = use.duration - static_cast<double>(at.micro_batches * at.chunks) * all;
      EXPECT_THAT(use.idle_time, testing::Each(bubble));
      const bool fills = at.micro_batches >= at.ranks;
      if (name == "gpipe" || name == "1f1b") {
        EXPECT_EQ(bubble, others * all);
      } else if (name == "interleaved" && fills) {
        // Narayanan et al. 2021, 2.2.2: of a rank's time for a micro-batch, 1 / v.
        EXPECT_EQ(bubble, others * all);
      } else if (name == "zb-h1" && fills) {
        // Qi et al. 2023: this where no weight pass is left to fill it.
        EXPECT_LE(bubble, others * (costs.forward + costs.input - costs.weight));
      }
    }
  });
}

// ZB-V: with equal costs all that is left is the first pass through the other ranks.
TEST(PipelineSchedules, TheVIdlesWhileItFills) {
  const PipelineSchedule& schedule = find_schedule("zb-v");
  for (int p = 1; p <= 8; ++p) {
    for (const std::int64_t m : {2 * p, 3 * p + 1, 5 * p}) {
      EXPECT_THAT((Case{schedule, p, m, 2}.simulate({}).idle_time), testing::Each(p - 1))
          << p << " " << m;
    }
  }
}

TEST(PipelineSchedules, HoldWhatThePapersSay) {
  for_all_cases([](const Case& at) {
    const std::string name = at.schedule.name;
    const PipelineUse use = at.simulate({});
    const std::int64_t p = at.ranks, m = at.micro_batches, v = at.chunks;
    for (std::int64_t r = 0; r < p; ++r) {
      const auto held = static_cast<std::int64_t>(use.in_flight[static_cast<std::size_t>(r)]);
      if (name == "gpipe") {
        EXPECT_EQ(held, m);
      } else if (name == "1f1b") {
        EXPECT_EQ(held, std::min(p - r, m));
      } else if (name == "interleaved") {
        EXPECT_EQ(held, std::min((v - 1) * p + 2 * (p - r - 1) + 1, m * v));
      } else if (name == "zb-h1") {
        EXPECT_EQ(held, std::min(p, m));
      } else if (m >= 2 * p) {
        EXPECT_EQ(held, 2 * p);
      } else {
        EXPECT_LE(held, 2 * std::min(p, m));
      }
    }
  });
}

// The last rank has the costly head: the others wait for it.
TEST(PipelineSchedules, StagesMayHaveCostsOfTheirOwn) {
  const Pipeline pipeline = {2, 4, {0, 1, 2}};
  const std::vector<PassCosts> costs = {{1, 1, 1}, {2, 2, 2}};
  const Lists lists = actions_of_ranks(find_schedule("1f1b"), pipeline);
  const PipelineUse use = simulate_pipeline(pipeline, lists, costs);
  EXPECT_EQ(use.duration, 1 + 4 * 6 + 2);
  EXPECT_THAT(use.idle_time, testing::ElementsAre(15, 3));
  EXPECT_DOUBLE_EQ(use.bubble(), 18.0 / 54);
}

std::string refusal(const std::string& name, int ranks, int chunks, std::size_t stages,
                    std::int64_t micro_batches) {
  try {
    check_schedule(find_schedule(name), ranks, chunks, stages, micro_batches);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(PipelineSchedules, RefuseWhatTheyCannotCarry) {
  using testing::HasSubstr;
  EXPECT_EQ(refusal("1f1b", 4, 1, 4, 4), "");
  EXPECT_EQ(refusal("interleaved", 4, 2, 8, 8), "");
  EXPECT_THAT(refusal("1f1b", 5, 1, 4, 8), HasSubstr("use at most 4 ranks"));
  EXPECT_THAT(refusal("gpipe", 4, 1, 4, 3), HasSubstr("at least 4 micro-batches"));
  EXPECT_THAT(refusal("interleaved", 4, 2, 8, 10), HasSubstr("use 12, or schedule 1f1b"));
  EXPECT_THAT(refusal("interleaved", 4, 3, 11, 8), HasSubstr("fewer chunks"));
  EXPECT_THAT(refusal("interleaved", 4, 1, 11, 8), HasSubstr("2 or more chunks a rank, not 1"));
  EXPECT_THAT(refusal("zb-v", 4, 1, 11, 8), HasSubstr("2 chunks a rank, not 1"));
  EXPECT_THAT(refusal("zb-v", 4, 2, 7, 8), HasSubstr("one chunk a rank: 1f1b"));
  EXPECT_THAT([] { find_schedule("2f2b"); },
              testing::ThrowsMessage<Error>(HasSubstr("gpipe, 1f1b, interleaved, zb-h1, zb-v")));
}

}  // namespace
}  // namespace atl::parallel
