#include "atoll/base/threads/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "atoll/base/error.h"

namespace atl {
namespace {

class ThreadPoolOf : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

TEST_P(ThreadPoolOf, RunsEveryTaskOnceInManyGenerations) {
  EXPECT_EQ(pool_.num_threads(), GetParam());
  for (int generation = 0; generation < 300; ++generation) {
    const int num_tasks = generation % 17;
    std::vector<int> counts(static_cast<std::size_t>(num_tasks), 0);  // unguarded: one task each
    pool_.run(num_tasks, [&](std::int64_t task) { ++counts[static_cast<std::size_t>(task)]; });
    EXPECT_THAT(counts, ::testing::Each(1));
  }
}

// The caller writes plain memory between runs and the tasks read and write it.
TEST_P(ThreadPoolOf, SeesWhatTheCallerWroteAndTheCallerSeesTheTasks) {
  std::vector<std::int64_t> values(64, 0);
  std::int64_t added = 0;
  for (std::int64_t generation = 1; generation <= 300; ++generation) {
    added = generation;
    pool_.run(64, [&](std::int64_t task) { values[static_cast<std::size_t>(task)] += added; });
  }
  EXPECT_THAT(values, ::testing::Each(300 * 301 / 2));
}

TEST_P(ThreadPoolOf, WakesWorkersThatHaveGoneToSleep) {
  for (int generation = 0; generation < 5; ++generation) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> count{0};
    pool_.run(32, [&](std::int64_t) { ++count; });
    EXPECT_EQ(count, 32);
  }
}

TEST_P(ThreadPoolOf, WaitsForWorkersThatTakeLong) {
  std::atomic<int> count{0};
  pool_.run(16, [&](std::int64_t task) {
    if (task != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++count;
  });
  EXPECT_EQ(count, 16);
}

TEST_P(ThreadPoolOf, RethrowsAfterAllTasksEndedAndCanBeUsedAgain) {
  for (const std::int64_t num_tasks : {1, 2, 20}) {
    std::atomic<int> count{0};
    EXPECT_THROW(pool_.run(num_tasks,
                           [&](std::int64_t task) {
                             ++count;
                             if (task % 2 == 0) throw std::runtime_error("task failed");
                           }),
                 std::runtime_error);
    EXPECT_EQ(count, num_tasks);
    pool_.run(num_tasks, [&](std::int64_t) { ++count; });
    EXPECT_EQ(count, 2 * num_tasks);
  }
}

TEST_P(ThreadPoolOf, ChunksCoverTheRangeOnce) {
  for (const std::int64_t n : {0, 1, 9, 10, 11, 100}) {
    std::vector<int> counts(static_cast<std::size_t>(n), 0);
    pool_.run_chunked(n, 10, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 10, 0);
      EXPECT_LE(end - begin, 10);
      for (std::int64_t i = begin; i < end; ++i) ++counts[static_cast<std::size_t>(i)];
    });
    EXPECT_THAT(counts, ::testing::Each(1));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, ::testing::Range(1, 9));

TEST(ThreadPool, StartsAndEndsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool(1 + i % 4);
}

TEST(ThreadPool, RefusesAnOddNumberOfThreads) {
  for (const int num_threads : {0, -1, 5000}) {
    EXPECT_THROW((void)ThreadPool(num_threads), Error);
  }
}

TEST(AvailableCpus, IsBetweenOneAndWhatTheMachineHas) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace atl
