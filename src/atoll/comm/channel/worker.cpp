#include "atoll/comm/channel/worker.h"

#include <utility>

namespace atl::comm {

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// The first entry whose Work has ended: the same call of each step then finds the same entry, whose
// vectors have the capacity that it needs.
const std::shared_ptr<Started>& Worker::take_unused() {
  for (const auto& started : all_)
    if (!started->in_use.load(std::memory_order_acquire)) return started;
  return all_.emplace_back(std::make_shared<Started>());
}

Work Worker::push(const Collective& collective, std::uint64_t number,
                  std::shared_ptr<StagedExchange> staged) {
  std::shared_ptr<Started> started;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    started = take_unused();
    started->collective = collective;
    started->number = number;
    started->staged = std::move(staged);
    started->failure.reset();
    started->done.store(0, std::memory_order_relaxed);
    started->in_use.store(true, std::memory_order_relaxed);
    started->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = started.get();
    last_ = started.get();
    unfinished_.fetch_add(1, std::memory_order_relaxed);
    pending_.fetch_add(1, std::memory_order_relaxed);
  }
  arrived_.notify_one();
  return Work(std::move(started));
}

void Worker::wait_idle() {
  // This wait ends, because every collective ends, at the latest by its timeout.
  for (std::uint32_t pending = pending_.load(std::memory_order_acquire); pending != 0;
       pending = pending_.load(std::memory_order_acquire)) {
    pending_.wait(pending, std::memory_order_acquire);
  }
}

void Worker::loop() {
  for (;;) {
    Started* next = nullptr;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
      if (first_ == nullptr) return;
      next = std::exchange(first_, first_->next);
      if (first_ == nullptr) last_ = nullptr;
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
