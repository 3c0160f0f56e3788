#include "atoll/comm/work.h"

#include "atoll/comm/worker.h"

namespace atl::comm {

void Work::wait() {
  if (state_ == nullptr) return;
  state_->started->wait();
  if (state_->started->failure) state_->started->failure->raise();
}

bool Work::done() const {
  return state_ == nullptr || state_->started->done.load(std::memory_order_acquire) != 0;
}

}  // namespace atl::comm
