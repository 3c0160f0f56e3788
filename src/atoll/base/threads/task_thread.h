#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace atl {

/// One thread that runs tasks in the order in which they were given, beside the caller's.
class TaskThread {
 public:
  TaskThread();
  /// Runs what was given, then ends.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Returns at once. The future is ready when the task is done, and throws what it threw.
  std::future<void> start(std::function<void()> task);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl
