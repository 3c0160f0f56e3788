#include "atoll/comm/work.h"

#include "atoll/comm/worker.h"

namespace atl::comm {

void Work::wait() {
  if (state_ == nullptr) return;
  state_->done.wait(0, std::memory_order_acquire);
  if (state_->failure) state_->failure->raise();
}

bool Work::done() const {
  return state_ == nullptr || state_->done.load(std::memory_order_acquire) != 0;
}

}  // namespace atl::comm
