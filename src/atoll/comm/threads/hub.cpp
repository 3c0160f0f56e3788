#include "atoll/comm/threads/hub.h"

#include <sched.h>

namespace atl::comm {

namespace {

// Those that this process may use; 0 where the system does not tell.
int num_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

}  // namespace

Hub::Hub(int size, double timeout_s, Hub* first)
    : first_(first == nullptr ? *this : *first),
      size_(size),
      timeout_s_(timeout_s),
      has_a_core_each_(size <= num_cores()),
      ranks_(new RankState[static_cast<std::size_t>(size)]),
      meetings_(new Meeting[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]),
      mailboxes_(new Mailbox[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]) {
  // How many letters lie here at the same time is a matter of who is faster.
  for (int i = 0; i < size * size; ++i) mailboxes_[static_cast<std::size_t>(i)].letters.reserve(8);
}

Hub& Hub::channel(int number, std::span<const int> members) {
  const std::lock_guard lock(first_.mutex_);
  std::unique_ptr<Hub>& hub = first_.channels_[{number, members.front(), members.back()}];
  if (hub == nullptr) hub.reset(new Hub(size_, timeout_s_, &first_));
  return *hub;
}

void Hub::abort(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(first_.mutex_);
  if (first_.aborted_.load()) return;
  first_.aborted_by_ = rank;
  try {
    first_.why_ = why;
  } catch (...) {  // out of memory: who failed must do
  }
  first_.aborted_.store(true, std::memory_order_seq_cst);
  first_.wake_all();
  for (const auto& [key, hub] : first_.channels_) hub->wake_all();
}

void Hub::end(int rank) noexcept {
  this->rank(rank).ended.store(true, std::memory_order_seq_cst);
  wake_all();
}

void Hub::wake_all() noexcept {
  for (int i = 0; i < size_; ++i) rank(i).news.bump();
}

}  // namespace atl::comm
