#include "atoll/comm/shared/peers.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "atoll/base/file.h"

namespace atl::comm::shared {

namespace {

constexpr double kSilent = 1.0;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Not FUTEX_PRIVATE: the word is shared between processes.
long futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, &word, op, value, timeout, nullptr, 0);
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  const std::size_t n = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

template <std::size_t N>
std::string text_of(const char (&text)[N]) {
  return {text, ::strnlen(text, N)};
}

/// The state letter of /proc/<pid>/stat, or 0.
char process_state(int pid) {
  try {
    const std::string stat = read_file(fmt::format("/proc/{}/stat", pid));
    const std::size_t end = stat.rfind(')');
    return end == std::string::npos || end + 2 >= stat.size() ? 0 : stat[end + 2];
  } catch (const Error&) {
    return 0;  // it ended meanwhile
  }
}

}  // namespace

Peers::Peers(Segment& segment, std::vector<Peer> peers, int self)
    : segment_(segment), peers_(std::move(peers)), self_(self) {
  for (const Peer& peer : peers_) {
    // A descriptor of the process, so that another one with its number is not taken for it. -1
    // where the kernel knows none: then its number has to do.
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
    if (fd < 0 && errno == ESRCH)
      fail(peer.rank, fmt::format("rank {} (pid {}) is gone", peer.rank, peer.pid));
    pidfds_.push_back(fd);
  }
}

Peers::~Peers() {
  segment_.rank(self_).left.store(1);
  for (int local = 0; local < size(); ++local) ring(local);
  for (const int fd : pidfds_)
    if (fd >= 0) ::close(fd);
}

int Peers::find(int rank) const {
  for (int local = 0; local < size(); ++local)
    if (this->rank(local) == rank) return local;
  return -1;
}

void Peers::enter(const CallHeader& call) {
  RankBlock& block = segment_.rank(self_);
  block.call_version.fetch_add(1, std::memory_order_acq_rel);
  block.call = call;
  block.call_version.fetch_add(1, std::memory_order_release);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.inside.store(1, std::memory_order_relaxed);
}

void Peers::leave() {
  RankBlock& block = segment_.rank(self_);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.inside.store(0, std::memory_order_relaxed);
}

void Peers::ring(int local) {
  RankBlock& block = segment_.rank(local);
  block.bell.fetch_add(1);
  if (block.asleep.load() != 0) futex(block.bell, FUTEX_WAKE, 64, nullptr);
}

std::uint32_t Peers::bell() const {
  return segment_.rank(self_).bell.load();
}

void Peers::wait(std::uint32_t bell, std::chrono::microseconds most) {
  RankBlock& block = segment_.rank(self_);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.asleep.store(1);
  const timespec timeout{static_cast<time_t>(most.count() / 1000000),
                         static_cast<long>(most.count() % 1000000) * 1000};
  if (block.bell.load() == bell) futex(block.bell, FUTEX_WAIT, bell, &timeout);
  block.asleep.store(0);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
}

bool Peers::dead(int local) const {
  const int fd = pidfds_[static_cast<std::size_t>(local)];
  const int pid = peers_[static_cast<std::size_t>(local)].pid;
  if (fd < 0) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

void Peers::throw_failure() const {
  const Failure& failure = segment_.failure();
  if (failure.state.load(std::memory_order_acquire) == 2)
    throw PeerError(failure.rank, text_of(failure.text));
}

int Peers::lost(const std::vector<int>& awaited) const {
  for (const int local : awaited)
    if (local != self_ && (segment_.rank(local).left.load() != 0 || dead(local))) return local;
  return -1;
}

void Peers::fail_lost(int local) {
  const bool left = segment_.rank(local).left.load() != 0;
  const std::string text =
      fmt::format("{} {}; {}", name(local),
                  left ? "has left" : "is gone: its process ended without a word", describe(local));
  fail(rank(local), text);
  throw_failure();
  throw PeerError(rank(local), text);
}

void Peers::fail(int rank, const std::string& text) noexcept {
  Failure& failure = segment_.failure();
  std::uint32_t none = 0;
  if (failure.state.compare_exchange_strong(none, 1)) {
    failure.rank = rank;
    copy_text(failure.text, text);
    failure.state.store(2, std::memory_order_release);
  }
  for (int local = 0; local < size(); ++local) ring(local);
}

double Peers::silence(int local) const {
  return static_cast<double>(now_ns() - segment_.rank(local).alive_ns.load()) / 1e9;
}

int Peers::suspect(const std::vector<int>& awaited, const std::vector<char>& arrived) const {
  for (const int local : awaited)
    if (!arrived[static_cast<std::size_t>(local)]) return local;
  for (const int local : awaited)
    if (process_state(peers_[static_cast<std::size_t>(local)].pid) == 'T') return local;
  for (const int local : awaited)
    if (silence(local) > kSilent) return local;
  return awaited.empty() ? -1 : awaited.front();
}

std::string Peers::name(int local) const {
  const Peer& peer = peers_[static_cast<std::size_t>(local)];
  return fmt::format("rank {} (pid {})", peer.rank, peer.pid);
}

std::string Peers::describe(int local) const {
  const RankBlock& block = segment_.rank(local);
  CallHeader call;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t version = block.call_version.load(std::memory_order_acquire);
    call = block.call;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version % 2 == 0 && block.call_version.load(std::memory_order_relaxed) == version) break;
  }
  const bool is_exchange = call.op == static_cast<std::uint8_t>(Op::kExchange);
  std::string text = is_exchange ? "an exchange" : call.to_string();
  if (call.magic == 0) {
    text = "it has made no call yet";
  } else if (block.inside.load() != 0) {
    text = fmt::format("it is in {}", text);
  } else {
    text = fmt::format("its last call was {}, {:.1f} s ago", text, silence(local));
  }
  const char state = process_state(peers_[static_cast<std::size_t>(local)].pid);
  if (state == 'T' || state == 't') text += "; the process is stopped";
  return text;
}

}  // namespace atl::comm::shared
