#include "atoll/base/threads/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace atl {
namespace {

TEST(TaskThread, RunsTasksInOrderAndAllBeforeItEnds) {
  std::vector<int> done;
  {
    TaskThread thread;
    for (int i = 0; i < 100; ++i) thread.start([&done, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST(TaskThread, WhatATaskThrowsComesOutOfItsFutureAlone) {
  TaskThread thread;
  std::future<void> bad = thread.start([] { throw std::runtime_error("bad"); });
  std::future<void> good = thread.start([] {});
  EXPECT_THROW(bad.get(), std::runtime_error);
  EXPECT_NO_THROW(good.get());
}

}  // namespace
}  // namespace atl
