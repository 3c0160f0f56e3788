#include "atoll/comm/threads/thread_channel.h"

#include <sched.h>

namespace atl::comm {

namespace {

// The cores that this process may use; 0 where the system does not say.
int num_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

}  // namespace

ThreadChannel::ThreadChannel(int size, double timeout_s, ThreadChannel* first)
    : first_(first == nullptr ? *this : *first),
      size_(size),
      timeout_s_(timeout_s),
      has_a_core_each_(size <= num_cores()),
      ranks_(new RankState[static_cast<std::size_t>(size)]),
      barrier_slots_(
          new BarrierSlot[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]),
      queues_(new MessageQueue[static_cast<std::size_t>(size) * static_cast<std::size_t>(size)]) {
  // How many messages wait at the same time depends on the speed of sender and receiver.
  for (int i = 0; i < size * size; ++i) queues_[static_cast<std::size_t>(i)].messages.reserve(8);
}

ThreadChannel& ThreadChannel::open(int number, std::span<const int> members) {
  const std::lock_guard lock(first_.mutex_);
  std::unique_ptr<ThreadChannel>& channel =
      first_.channels_[{number, members.front(), members.back()}];
  if (channel == nullptr) channel.reset(new ThreadChannel(size_, timeout_s_, &first_));
  return *channel;
}

void ThreadChannel::abort(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(first_.mutex_);
  if (first_.aborted_.load()) return;
  first_.aborted_by_ = rank;
  try {
    first_.why_ = why;
  } catch (...) {  // out of memory: who failed must do
  }
  first_.aborted_.store(true, std::memory_order_seq_cst);
  first_.wake_all();
  for (const auto& [key, channel] : first_.channels_) channel->wake_all();
}

void ThreadChannel::end(int rank) noexcept {
  this->rank(rank).ended.store(true, std::memory_order_seq_cst);
  wake_all();
}

void ThreadChannel::wake_all() noexcept {
  for (int i = 0; i < size_; ++i) rank(i).wakeup.bump();
}

}  // namespace atl::comm
