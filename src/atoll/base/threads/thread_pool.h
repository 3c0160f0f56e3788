#pragma once

// The threads of one rank. Work is cut by the caller into tasks whose number does not depend on
// the number of threads; that, and nothing else, is why the thread count changes no bit.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace atl {

/// A fixed team of threads that runs numbered tasks. The caller's thread is one of the team.
class ThreadPool {
 public:
  /// `num_threads` >= 1 counts the caller; throws Error(kUser) otherwise.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(i) for i in [0, num_tasks), each once, in any order and on any thread; returns when
  /// all are done. The first exception a task throws is rethrown here, after the others ended.
  /// Not reentrant: a task must not call run on the same pool.
  template <typename Fn>
  void run(std::int64_t num_tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    run_erased(num_tasks, {&invoke<Callable>, const_cast<void*>(static_cast<const void*>(&fn))});
  }

  /// Calls fn(begin, end) over [0, n) cut into chunks of `grain` items (the last may be shorter).
  template <typename Fn>
  void run_chunked(std::int64_t n, std::int64_t grain, Fn&& fn) {
    run((n + grain - 1) / grain, [&](std::int64_t task) {
      const std::int64_t begin = task * grain;
      fn(begin, begin + grain < n ? begin + grain : n);
    });
  }

 private:
  struct Call {  // a non-owning reference to the caller's function object
    void (*invoke)(void*, std::int64_t) = nullptr;
    void* object = nullptr;
  };
  template <typename Callable>
  static void invoke(void* object, std::int64_t task) {
    (*static_cast<Callable*>(object))(task);
  }

  void run_erased(std::int64_t num_tasks, Call call);
  static void run_alone(std::int64_t num_tasks, Call call);
  void worker_loop();
  void stop();
  bool enter();
  void work();

  std::vector<std::thread> workers_;
  Call call_;
  std::int64_t num_tasks_ = 0;
  std::atomic<std::int64_t> next_task_{0};
  std::atomic<std::uint32_t> generation_{0};  // bumped for each run; workers wait on it
  // The workers inside the present run, and whether more may enter. A run ends when its tasks are
  // done; a worker that the system wakes too late finds the gate closed and nobody waits for it.
  static constexpr int kClosed = 1 << 30;
  std::atomic<int> gate_{kClosed};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

/// The number of CPUs this process may use (its affinity mask and its cgroup's CPU quota).
int available_cpus();

}  // namespace atl
