#include "atoll/comm/collectives/background.h"

#include <utility>

namespace atl::comm {

Background::~Background() {
  if (!thread_.joinable()) return;
  state_.wait(kRuns, std::memory_order_acquire);
  state_.store(kEnds, std::memory_order_release);
  state_.notify_one();
  thread_.join();
}

void Background::start() {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  state_.store(kRuns, std::memory_order_release);
  state_.notify_one();
}

void Background::wait() {
  state_.wait(kRuns, std::memory_order_acquire);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Background::loop() {
  for (;;) {
    state_.wait(kIdle, std::memory_order_acquire);
    if (state_.load(std::memory_order_acquire) == kEnds) return;
    try {
      action_();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    state_.store(kIdle, std::memory_order_release);
    state_.notify_one();
  }
}

}  // namespace atl::comm
