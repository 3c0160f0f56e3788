#include "atoll/island/coordinator/inbox.h"

#include <utility>

namespace atl::island {

void Inbox::put(Arrival arrival) {
  arrivals_.push_back(std::move(arrival));
  changed_.notify_all();
}

void Inbox::opened(ConnectionId connection, const std::string& name) {
  const std::lock_guard lock(mutex_);
  put({Arrival::Kind::kOpened, connection, name});
}

void Inbox::closed(ConnectionId connection, const std::string& why) {
  const std::lock_guard lock(mutex_);
  put({Arrival::Kind::kClosed, connection, why});
}

bool Inbox::received(ConnectionId connection, std::string frame, bool has_joined) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(connection);
  const Waiting before = found == waiting_.end() ? Waiting{} : found->second;
  const bool fits = has_joined
                        ? before.bytes + frame.size() <= kMaxJoinedBytes
                        : before.frames == 0 && unjoined_bytes_ + frame.size() <= kMaxUnjoinedBytes;
  if (!fits) return false;
  Waiting& now = waiting_[connection];
  ++now.frames;
  now.bytes += frame.size();
  if (!has_joined) unjoined_bytes_ += frame.size();
  put({Arrival::Kind::kReceived, connection, std::move(frame)});
  return true;
}

Inbox::Arrivals Inbox::take(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [this] { return is_stopping_ || !arrivals_.empty(); });
  waiting_.clear();
  unjoined_bytes_ = 0;
  return std::exchange(arrivals_, {});
}

void Inbox::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
}

bool Inbox::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

}  // namespace atl::island
