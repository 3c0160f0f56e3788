#include "atoll/comm/worker.h"

#include <utility>

namespace atl::comm {

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Work Worker::push(Collective collective, std::uint64_t number) {
  auto started = std::make_shared<Started>();
  started->collective = std::move(collective);
  started->number = number;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    queue_.push_back(started);
    unfinished_.fetch_add(1, std::memory_order_relaxed);
    pending_.fetch_add(1, std::memory_order_relaxed);
  }
  arrived_.notify_one();
  return Work(std::shared_ptr<Work::State>(new Work::State{std::move(started)}));
}

void Worker::wait_idle() {
  // Ends because every collective does, if by its timeout.
  for (std::uint32_t pending = pending_.load(std::memory_order_acquire); pending != 0;
       pending = pending_.load(std::memory_order_acquire)) {
    pending_.wait(pending, std::memory_order_acquire);
  }
}

void Worker::loop() {
  for (;;) {
    std::shared_ptr<Started> next;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    carry_out(*next);
  }
}

void Worker::carry_out(Started& started) {
  try {
    action_(started.collective, started.number);
  } catch (...) {
    started.failure = Failure::current();
  }
  unfinished_.fetch_sub(1, std::memory_order_release);
  started.done.store(1, std::memory_order_release);
  started.done.notify_all();
  pending_.fetch_sub(1, std::memory_order_release);
  pending_.notify_all();
}

}  // namespace atl::comm
