#include "atoll/comm/threads/hub.h"

namespace atl::comm {

Hub::Hub(int size, double timeout_s)
    : size_(size),
      timeout_s_(timeout_s),
      ranks_(new RankState[static_cast<std::size_t>(size)]),
      meetings_(new Count[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]),
      mailboxes_(new Mailbox[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]) {}

void Hub::abort(int rank, const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    aborted_by_ = rank;
    try {
      why_ = why;
    } catch (...) {  // out of memory: who failed must do
    }
    aborted_.store(true, std::memory_order_seq_cst);
  }
  wake_all();
}

void Hub::end(int rank) noexcept {
  this->rank(rank).ended.store(true, std::memory_order_seq_cst);
  wake_all();
}

void Hub::wake_all() noexcept {
  for (int i = 0; i < size_; ++i) rank(i).news.bump();
}

}  // namespace atl::comm
