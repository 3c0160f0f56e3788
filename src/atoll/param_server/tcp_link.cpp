#include "atoll/param_server/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/param_server/messages.h"

namespace atl::param_server {

namespace {

using comm::tcp::FrameStream;
using comm::tcp::MessageKind;

constexpr MessageKind kHello = MessageKind::kCall;
constexpr MessageKind kMessage = MessageKind::kBytes;
constexpr MessageKind kAlive = MessageKind::kResult;
constexpr MessageKind kGoodbye = comm::tcp::kGoodbye;
// Of a greeting or a reason.
constexpr std::size_t kLongestText = 4096;
// Where nothing is proved: of a frame, before any of it has come.
constexpr std::size_t kFirstRoom = std::size_t{64} << 10;
// Calls of the system for one link before the next has its turn.
constexpr int kReadsAtOnce = 64;
// FrameStream names ranks; here there is none.
constexpr int kNoRank = -1;

comm::rendezvous::Socket without_delay(comm::rendezvous::Socket socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

const std::byte* bytes_of(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

}  // namespace

TcpLink::TcpLink(comm::rendezvous::Socket socket, Clock::time_point now, const Proof& proof)
    : stream_(without_delay(std::move(socket)), kNoRank),
      proof_(proof),
      nonce_(wire::make_nonce()),
      began_(now),
      heard_(now),
      said_(now) {
  const std::string& text = outgoing_.emplace_back(std::string(kGreeting) + nonce_);
  stream_.push(kHello, bytes_of(text), text.size(), 0);
}

// Each side has another word, so that a proof cannot be sent back to its maker.
std::string TcpLink::proof_of(bool is_client) const {
  if (proof_.secret == nullptr) return "";
  return proof_.secret->proof(
      is_client ? "tcp client" : "tcp server", proof_.port,
      (proof_.is_client ? nonce_ : other_nonce_) + (proof_.is_client ? other_nonce_ : nonce_));
}

void TcpLink::take_greeting() {
  if (!incoming_.starts_with(kGreeting) || incoming_.size() != kGreeting.size() + nonce_.size()) {
    throw damaged_error("it is of another version; start all of them with the same atoll");
  }
  other_nonce_ = incoming_.substr(kGreeting.size());
  state_ = State::kGreeted;
  const std::string& text = outgoing_.emplace_back(proof_of(proof_.is_client));
  stream_.push(kHello, text.empty() ? &nothing_ : bytes_of(text), text.size(), 0);
  write();  // before the other side's proof is judged: it shall hear why it is refused
}

void TcpLink::take_proof() {
  if (proof_.secret == nullptr && !incoming_.empty()) {
    throw damaged_error(
        "it has a secret and this side has none; give both the same file (sync.secret, --secret)");
  }
  if (!wire::is_same(incoming_, proof_of(!proof_.is_client))) {
    throw damaged_error("it does not know the run's secret (sync.secret, --secret)");
  }
  state_ = State::kOpen;
}

short TcpLink::wanted() const {
  return static_cast<short>(is_sent() ? POLLIN : POLLIN | POLLOUT);
}

// A deque keeps its elements where they are.
void TcpLink::push(std::string message) {
  if (is_ending_) return;
  const std::string& text = outgoing_.emplace_back(std::move(message));
  stream_.push(kMessage, bytes_of(text), text.size(), text.size());
}

void TcpLink::end(const std::string& why) {
  if (std::exchange(is_ending_, true)) return;
  const std::string& text = outgoing_.emplace_back(why.substr(0, kLongestText));
  stream_.push(kGoodbye, bytes_of(text), text.size(), 0);
}

std::size_t TcpLink::take_sent_bytes() {
  return std::exchange(sent_bytes_, 0);
}

void TcpLink::move(Clock::time_point now, std::vector<std::string>& messages) {
  if (is_sent() && !is_ending_ && now - said_ >= kAliveEvery) {
    const std::string& text = outgoing_.emplace_back();
    stream_.push(kAlive, bytes_of(text), 0, 0);
  }
  if (!is_sent()) said_ = now;
  write();
  read(now, messages);
  if (!stream_.broken().empty() && !goodbye_) {
    throw make_error(ErrorKind::kPeer, "the connection broke: {}", stream_.broken());
  }
  if (!is_greeted() && now - began_ > kSilence && !goodbye_) {
    throw make_error(ErrorKind::kPeer, "it did not greet within {} s",
                     std::chrono::duration_cast<std::chrono::seconds>(kSilence).count());
  }
  if (now - heard_ > kSilence && !goodbye_) {
    throw make_error(ErrorKind::kPeer, "nothing came from it for {} s",
                     std::chrono::duration_cast<std::chrono::seconds>(kSilence).count());
  }
}

void TcpLink::write() {
  do {
    sent_.clear();
    stream_.flush(sent_);
    for (const FrameStream::Sent& frame : sent_) {
      sent_bytes_ += frame.tag;
      outgoing_.pop_front();
    }
  } while (!sent_.empty() && !is_sent());
}

void TcpLink::read(Clock::time_point now, std::vector<std::string>& messages) {
  try {
    for (int i = 0; i < kReadsAtOnce && !goodbye_; ++i) {
      if (!stream_.read()) return;
      heard_ = now;
      take_frames(messages);
    }
  } catch (const comm::tcp::PeerClosedError&) {
    throw make_error(ErrorKind::kPeer, "{}",
                     is_greeted() ? "the connection broke" : "it closed the connection at once");
  } catch (const comm::PeerError&) {
    throw damaged_error(
        "it sends bytes that are no frames of a parameter server over tcp; does it use grpc?");
  }
}

void TcpLink::take_frames(std::vector<std::string>& messages) {
  while (const comm::tcp::Frame* frame = stream_.frame()) {
    if (!stream_.placed()) {
      check(*frame);
      incoming_.clear();
      make_room(frame->bytes);
    }
    if (!stream_.whole()) return;
    if (incoming_.size() < frame->bytes) {
      make_room(frame->bytes);
      continue;
    }
    finish(frame->kind, messages);
    stream_.release();
    if (goodbye_) return;
  }
}

// Where nothing is proved, memory is given for what has come and not for what is claimed.
void TcpLink::make_room(std::size_t bytes) {
  const std::size_t before = incoming_.size();
  const bool is_trusted = is_greeted() && proof_.secret != nullptr;
  incoming_.resize(is_trusted ? bytes : std::min(bytes, std::max(kFirstRoom, 2 * before)));
  std::byte* const to = reinterpret_cast<std::byte*>(incoming_.data()) + before;
  stream_.place(incoming_.empty() ? &nothing_ : to, incoming_.size() - before);
}

void TcpLink::check(const comm::tcp::Frame& frame) const {
  if (is_greeted() == (frame.kind == kHello)) {
    throw damaged_error("{}", is_greeted() ? "it greets twice" : "it does not greet first");
  }
  const bool is_known = frame.kind == kHello || frame.kind == kMessage || frame.kind == kAlive ||
                        frame.kind == kGoodbye;
  const std::size_t most = frame.kind == kMessage ? kMaxFrame
                           : frame.kind == kAlive ? 0
                                                  : kLongestText;
  if (is_known && frame.bytes <= most) return;
  throw damaged_error("a frame of kind {} with {} bytes", static_cast<std::uint32_t>(frame.kind),
                      frame.bytes);
}

void TcpLink::finish(MessageKind kind, std::vector<std::string>& messages) {
  if (kind == kMessage) messages.push_back(std::exchange(incoming_, {}));
  if (kind == kGoodbye) goodbye_ = incoming_;
  if (kind != kHello) return;
  if (state_ == State::kNew) {
    take_greeting();
  } else {
    take_proof();
  }
}

}  // namespace atl::param_server
