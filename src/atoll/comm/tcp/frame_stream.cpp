#include "atoll/comm/tcp/frame_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace atl::comm::tcp {

namespace {

constexpr std::uint32_t kMagic = 0x314c5441;  // "ATL1"

bool known_kind(MessageKind kind) {
  return kind == MessageKind::kCall || kind == MessageKind::kBytes ||
         kind == MessageKind::kContribution || kind == MessageKind::kResult || kind == kGoodbye;
}

}  // namespace

FrameStream::FrameStream(rendezvous::Socket socket, int peer)
    : socket_(std::move(socket)), peer_(peer) {
  queue_.reserve(4 * kMostFrames);
}

void FrameStream::push(MessageKind kind, const std::byte* data, std::size_t bytes,
                       std::size_t tag) {
  if (first_ == queue_.size() || queue_.size() == queue_.capacity()) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  queue_.push_back({{kMagic, kind, bytes}, data, bytes, tag});
  queued_bytes_ += bytes;
}

bool FrameStream::flush(std::vector<Sent>& sent) {
  if (queued() == 0 || !broken_.empty()) return false;
  iovec parts[2 * kMostFrames];
  std::size_t count = 0, skip = sent_;
  const auto add = [&](const void* data, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (skipped == bytes) return;
    auto* from = static_cast<std::byte*>(const_cast<void*>(data)) + skipped;
    parts[count++] = {from, bytes - skipped};
  };
  const std::size_t last = std::min(queue_.size(), first_ + kMostFrames);
  for (std::size_t i = first_; i < last; ++i) {
    add(&queue_[i].head, sizeof(Frame));
    add(queue_[i].data, queue_[i].bytes);
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t n = 0;
  do {
    n = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    if (errno != EAGAIN) broken_ = std::strerror(errno);
    return false;
  }
  advance(static_cast<std::size_t>(n), sent);
  return true;
}

void FrameStream::advance(std::size_t bytes, std::vector<Sent>& sent) {
  sent_ += bytes;
  while (queued() > 0 && sent_ >= sizeof(Frame) + queue_[first_].bytes) {
    const Outbound& out = queue_[first_++];
    sent_ -= sizeof(Frame) + out.bytes;
    queued_bytes_ -= out.bytes;
    sent.push_back({out.tag, out.bytes});
  }
}

const Frame* FrameStream::frame() {
  if (known_) return &frame_;
  if (stage_end_ - stage_begin_ < sizeof(Frame)) return nullptr;
  std::memcpy(&frame_, stage_.data() + stage_begin_, sizeof(Frame));
  stage_begin_ += sizeof(Frame);
  if (frame_.magic != kMagic || !known_kind(frame_.kind))
    throw PeerError(peer_, fmt::format("rank {} sends bytes that are none of atoll's frames; is "
                                       "it of another version?",
                                       peer_));
  known_ = true;
  return &frame_;
}

void FrameStream::place(std::byte* to, std::size_t bytes) {
  to_ = to;
  left_ = bytes;
  take_staged();
}

void FrameStream::release() {
  known_ = false;
  to_ = nullptr;
}

void FrameStream::take_staged() {
  const std::size_t bytes = std::min(left_, stage_end_ - stage_begin_);
  std::memcpy(to_, stage_.data() + stage_begin_, bytes);
  stage_begin_ += bytes;
  to_ += bytes;
  left_ -= bytes;
}

bool FrameStream::read() {
  if (stage_begin_ == stage_end_) {
    stage_begin_ = stage_end_ = 0;
  } else if (stage_begin_ > 0) {  // part of a head
    std::memmove(stage_.data(), stage_.data() + stage_begin_, stage_end_ - stage_begin_);
    stage_end_ -= std::exchange(stage_begin_, 0);
  }
  const std::size_t room = kStage - stage_end_;
  if (room == 0) return false;
  const std::size_t direct = to_ != nullptr ? left_ : 0;
  iovec parts[2] = {{to_, direct},
                    {stage_.data() + stage_end_, direct > 0 ? std::min(room, kBeyond) : room}};
  msghdr message{};
  message.msg_iov = direct > 0 ? parts : parts + 1;
  message.msg_iovlen = direct > 0 ? 2 : 1;
  ssize_t n = 0;
  do {
    n = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0)
    throw PeerClosedError(peer_, fmt::format("the connection to rank {} is broken: it is gone ({})",
                                             peer_, n == 0 ? "it closed" : std::strerror(errno)));
  const std::size_t placed = std::min(static_cast<std::size_t>(n), direct);
  if (direct > 0) {
    to_ += placed;
    left_ -= placed;
  }
  stage_end_ += static_cast<std::size_t>(n) - placed;
  return true;
}

}  // namespace atl::comm::tcp
