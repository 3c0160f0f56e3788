#include "atoll/comm/channel/work.h"

#include <utility>

#include "atoll/comm/channel/started.h"

namespace atl::comm {

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  release();
  started_ = std::move(other.started_);
  return *this;
}

void Work::wait() {
  if (started_ == nullptr) return;
  started_->wait();
  if (started_->failure) started_->failure->raise();
  if (started_->staged != nullptr) started_->staged->take_back();
}

bool Work::done() const {
  return started_ == nullptr || started_->done.load(std::memory_order_acquire) != 0;
}

void Work::release() noexcept {
  if (started_ == nullptr) return;
  started_->wait();
  if (started_->staged != nullptr) started_->staged->end();
  started_->staged.reset();
  started_->in_use.store(false, std::memory_order_release);
  started_.reset();
}

}  // namespace atl::comm
