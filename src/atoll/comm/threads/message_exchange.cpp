#include "atoll/comm/threads/message_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "atoll/comm/world.h"

namespace atl::comm {

namespace {

std::string describe(std::size_t bytes, const std::optional<Spec>& spec) {
  return spec ? spec->to_string() : fmt::format("{} bytes", bytes);
}

}  // namespace

void MessageExchange::clear() {
  sends_.clear();
  receives_.clear();
}

void MessageExchange::send(int to, const void* data, std::size_t bytes, std::optional<Spec> spec) {
  MessageQueue& queue = endpoint_.channel().queue(endpoint_.rank(), to);
  {
    const std::lock_guard lock(queue.mutex);
    queue.messages.push_back({data, bytes, spec});
  }
  sends_.push_back({to, queue.num_posted.fetch_add(1, std::memory_order_release) + 1});
  endpoint_.channel().rank(to).wakeup.bump();
}

void MessageExchange::receive(int from, void* data, std::size_t bytes, std::optional<Spec> spec) {
  receives_.push_back({from, data, bytes, spec});
}

void MessageExchange::move() {
  endpoint_.wait_for([this] { return make_progress(); });
}

int MessageExchange::make_progress() {
  // Each peer's messages are taken in order. A peer whose first message has not come delays only
  // its own messages.
  std::fill(is_late_.begin(), is_late_.end(), 0);
  std::erase_if(receives_, [&](const PendingReceive& pending) {
    char& late = is_late_[static_cast<std::size_t>(pending.from)];
    if (late == 0 && take(pending)) return true;
    late = 1;
    return false;
  });
  std::erase_if(sends_, [&](const PendingSend& send) {
    const MessageQueue& queue = endpoint_.channel().queue(endpoint_.rank(), send.to);
    return queue.num_taken.load(std::memory_order_acquire) >= send.number;
  });
  if (!receives_.empty()) {
    check_not_in_collective(receives_.front().from);
    return receives_.front().from;
  }
  if (sends_.empty()) return -1;
  check_not_in_collective(sends_.front().to);
  return sends_.front().to;
}

bool MessageExchange::take(const PendingReceive& pending) {
  MessageQueue& queue = endpoint_.channel().queue(pending.from, endpoint_.rank());
  const std::uint64_t taken = queue.num_taken.load(std::memory_order_relaxed);
  if (queue.num_posted.load(std::memory_order_acquire) == taken) return false;
  PostedMessage message;
  {
    const std::lock_guard lock(queue.mutex);
    message = queue.messages[queue.first];
  }
  const bool same_dtype =
      !message.spec || !pending.spec || message.spec->dtype == pending.spec->dtype;
  if (message.bytes != pending.bytes || !same_dtype) {
    throw PeerError(pending.from,
                    fmt::format("rank {} sends {} where rank {} expects {}", pending.from,
                                describe(message.bytes, message.spec), endpoint_.rank(),
                                describe(pending.bytes, pending.spec)));
  }
  {
    const Endpoint::MemoryAccess access(endpoint_);
    if (message.bytes != 0) std::memcpy(pending.data, message.data, message.bytes);
  }
  {
    const std::lock_guard lock(queue.mutex);
    if (++queue.first == queue.messages.size()) {
      queue.messages.clear();
      queue.first = 0;
    }
  }
  queue.num_taken.fetch_add(1, std::memory_order_release);
  endpoint_.channel().rank(pending.from).wakeup.bump();
  return true;
}

// A rank that is in a collective with this rank never sends or takes a message there, so both would
// wait for ever. It may have done so before its call: so the queues are read once more.
void MessageExchange::check_not_in_collective(int rank) {
  ThreadChannel& channel = endpoint_.channel();
  const std::uint64_t mine =
      channel.barrier_slot(endpoint_.rank(), rank).count.load(std::memory_order_relaxed);
  if (channel.barrier_slot(rank, endpoint_.rank()).count.load(std::memory_order_acquire) <= mine)
    return;
  const bool first_is_here =
      !receives_.empty() && channel.queue(rank, endpoint_.rank()).num_posted.load() !=
                                channel.queue(rank, endpoint_.rank()).num_taken.load();
  const bool sent_is_taken =
      receives_.empty() &&
      channel.queue(endpoint_.rank(), rank).num_taken.load() >= sends_.front().number;
  if (first_is_here || sent_is_taken) return;
  throw PeerError(rank, fmt::format("rank {} waits elsewhere for this rank: {}", rank,
                                    endpoint_.last_call_of(rank)));
}

}  // namespace atl::comm
