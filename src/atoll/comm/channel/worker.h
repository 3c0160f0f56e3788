#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "atoll/comm/channel/started.h"
#include "atoll/comm/channel/work.h"

namespace atl::comm {

/// Carries out started collectives, in the order of the calls, on a thread of its own that is made
/// when the first arrives.
class Worker {
 public:
  using Action = std::function<void(const Collective& collective, std::uint64_t number)>;

  explicit Worker(Action action) : action_(std::move(action)) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Whether nothing is queued or runs, and all Works know.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  /// Whether everything has been done that was queued; idle() follows.
  bool finished() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  /// Queues a copy of the collective; its `number` goes to the action with it.
  /// Of an exchange that moves the host's memory in place of a GPU's: `staged`.
  Work push(const Collective& collective, std::uint64_t number,
            std::shared_ptr<StagedExchange> staged = nullptr);
  /// Returns when it is idle.
  void wait_idle();
  /// Returns when everything that was queued is done and the thread has ended.
  void stop();

 private:
  const std::shared_ptr<Started>& take_unused();
  void loop();
  void carry_out(Started& started);

  Action action_;
  // unfinished_ counts down before a Work is done, pending_ after. After a wait for the last Work
  // nothing is unfinished; once nothing is pending, every Work is done.
  std::atomic<std::uint32_t> unfinished_{0};
  std::atomic<std::uint32_t> pending_{0};
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Started>> all_;  // shared with Works, which may outlive the worker
  Started* first_ = nullptr;                   // of the queue
  Started* last_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace atl::comm
