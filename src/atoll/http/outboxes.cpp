#include "atoll/http/outboxes.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/http/reply.h"

namespace atl::http {

Outboxes::Outboxes(std::size_t max_unread)
    : max_unread_(max_unread), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  ATOLL_CHECK(wake_.open(), "eventfd failed");
}

void Outboxes::open(std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  boxes_[connection] = {};
}

void Outboxes::close(std::uint64_t connection) {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = boxes_.find(connection);
    if (found == boxes_.end()) return;
    gone = std::move(found->second.gone);
    boxes_.erase(found);
  }
  if (gone) gone();
}

void Outboxes::close_all() {
  std::unordered_map<std::uint64_t, Box> boxes;
  {
    const std::lock_guard lock(mutex_);
    boxes.swap(boxes_);
    list_.clear();
  }
  for (auto& [connection, box] : boxes) {
    if (box.gone) box.gone();
  }
}

bool Outboxes::has_unsent() {
  const std::lock_guard lock(mutex_);
  return std::any_of(boxes_.begin(), boxes_.end(), [](const auto& entry) {
    return entry.second.unread + entry.second.waiting > 0;
  });
}

void Outboxes::on_gone(std::uint64_t connection, std::uint64_t request,
                       std::function<void()> gone) {
  std::function<void()> before;  // destroyed without the lock, as what it holds may call here
  {
    const std::lock_guard lock(mutex_);
    const auto found = boxes_.find(connection);
    if (found != boxes_.end() && !found->second.too_slow) {
      before = std::exchange(found->second.gone, std::move(gone));
      found->second.request = request;
      return;
    }
  }
  gone();
}

void Outboxes::set_unread(std::uint64_t connection, std::size_t unread) {
  const std::lock_guard lock(mutex_);
  if (const auto box = boxes_.find(connection); box != boxes_.end()) box->second.unread = unread;
}

std::vector<Outgoing> Outboxes::take() {
  std::uint64_t count = 0;
  // Nothing to read is no error: nobody has woken us.
  if (::read(wake_.get(), &count, sizeof count) < 0) count = 0;
  const std::lock_guard lock(mutex_);
  for (auto& [connection, box] : boxes_) {
    box.unread += box.waiting;  // until the connection says what it has
    box.waiting = 0;
  }
  return std::exchange(list_, {});
}

void Outboxes::wake() const {
  const std::uint64_t one = 1;
  // It fails when it is full, and then it is awake.
  const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  (void)written;
}

bool Outboxes::put(Outgoing outgoing) {
  bool too_slow = false;
  std::function<void()> gone;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = boxes_.find(outgoing.connection);
    if (found == boxes_.end() || found->second.too_slow) return false;
    Box& box = found->second;
    // One at least: what ends an answer has no bytes here, but some in the connection.
    const std::size_t bytes =
        std::max<std::size_t>(outgoing.piece.size() + outgoing.response.body.size(), 1);
    const bool ends =
        outgoing.kind == Outgoing::Kind::kWhole || outgoing.kind == Outgoing::Kind::kEnd;
    if (ends && box.request == outgoing.request) gone = std::exchange(box.gone, nullptr);
    too_slow =
        outgoing.kind == Outgoing::Kind::kPiece && box.unread + box.waiting + bytes > max_unread_;
    box.too_slow = too_slow;
    if (too_slow) {
      outgoing.kind = Outgoing::Kind::kEnd;
      outgoing.piece.clear();
    } else {
      box.waiting += bytes;
    }
    list_.push_back(std::move(outgoing));
  }
  wake();
  return !too_slow;
}

bool Outboxes::is_open(std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  const auto found = boxes_.find(connection);
  return found != boxes_.end() && !found->second.too_slow;
}

bool Outboxes::is_too_slow(std::uint64_t connection) {
  const std::lock_guard lock(mutex_);
  const auto found = boxes_.find(connection);
  return found != boxes_.end() && found->second.too_slow;
}

void Reply::send(Response response) const {
  outboxes_->put({.connection = connection_,
                  .request = request_,
                  .kind = Outgoing::Kind::kWhole,
                  .response = std::move(response)});
}

void Reply::begin(Response head) const {
  outboxes_->put({.connection = connection_,
                  .request = request_,
                  .kind = Outgoing::Kind::kBegin,
                  .response = std::move(head)});
}

bool Reply::write(std::string_view piece) const {
  return outboxes_->put({.connection = connection_,
                         .request = request_,
                         .kind = Outgoing::Kind::kPiece,
                         .piece = std::string(piece)});
}

void Reply::end() const {
  outboxes_->put({.connection = connection_, .request = request_, .kind = Outgoing::Kind::kEnd});
}

void Reply::on_gone(std::function<void()> gone) const {
  outboxes_->on_gone(connection_, request_, std::move(gone));
}

bool Reply::is_open() const {
  return outboxes_->is_open(connection_);
}

}  // namespace atl::http
