#include "atoll/base/threads/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/processes/cgroup.h"

namespace atl {

namespace {

// A step is thousands of short parallel sections; waking a sleeping thread costs more than most of
// them. Workers and the caller therefore spin this many rounds (about 20 us) before they sleep.
constexpr int kSpinRounds = 2000;

template <typename Ready>
bool spin_until(Ready&& ready) {
  for (int i = 0; i < kSpinRounds; ++i) {
    if (ready()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads < 1 || num_threads > 4096) {
    throw user_error("a thread count must be between 1 and 4096, not {}", num_threads);
  }
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { worker_loop(); });
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    stop();
    throw make_error(ErrorKind::kResource,
                     "the system gave {} of {} threads ({}); ask for fewer or raise ulimit -u",
                     started, num_threads, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work() {
  for (;;) {
    const std::int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) return;
    try {
      call_.invoke(call_.object, task);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

bool ThreadPool::enter() {
  int inside = gate_.load(std::memory_order_relaxed);
  while ((inside & kClosed) == 0) {
    // Acquire: what the caller wrote before it opened the gate is seen inside.
    if (gate_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::worker_loop() {
  std::uint32_t seen = 0;
  for (;;) {
    if (!spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; })) {
      generation_.wait(seen, std::memory_order_acquire);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (!enter()) continue;
    work();
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1)) gate_.notify_one();
  }
}

void ThreadPool::run_alone(std::int64_t num_tasks, Call call) {
  std::exception_ptr error;  // as with many threads: an exception does not keep the others back
  for (std::int64_t task = 0; task < num_tasks; ++task) {
    try {
      call.invoke(call.object, task);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run_erased(std::int64_t num_tasks, Call call) {
  if (num_tasks <= 0) return;
  if (workers_.empty() || num_tasks == 1) {
    run_alone(num_tasks, call);
    return;
  }
  call_ = call;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  gate_.store(0, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work();
  gate_.fetch_or(kClosed, std::memory_order_acq_rel);
  if (!spin_until([&] { return gate_.load(std::memory_order_acquire) == kClosed; })) {
    for (int now = gate_.load(); now != kClosed; now = gate_.load()) gate_.wait(now);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

int available_cpus() {
  cpu_set_t set;
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  // In a container the quota, not the mask, says how much CPU there is.
  const double quota = cgroup_cpu_quota("/");
  if (quota > 0 && quota < cpus) cpus = static_cast<int>(std::ceil(quota));
  return std::max(cpus, 1);
}

}  // namespace atl
