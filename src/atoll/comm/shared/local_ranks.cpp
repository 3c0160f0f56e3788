#include "atoll/comm/shared/local_ranks.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "atoll/base/files/file.h"

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

LocalRanks::LocalRanks(Segment& segment, std::vector<LocalRank> local_ranks, int self)
    : segment_(segment), local_ranks_(std::move(local_ranks)), self_(self) {
  for (const LocalRank& peer : local_ranks_) {
    // A descriptor of the process, so that a later process with the same number is not taken for
    // it. -1 where the kernel has no such descriptors: then the number is used.
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
    if (fd < 0 && errno == ESRCH)
      fail(peer.rank, fmt::format("rank {} (pid {}) is gone", peer.rank, peer.pid));
    pidfds_.push_back(fd);
  }
}

LocalRanks::~LocalRanks() {
  segment_.rank(self_).left.store(1);
  for (int local = 0; local < size(); ++local) wake(local);
  for (const int fd : pidfds_)
    if (fd >= 0) ::close(fd);
}

int LocalRanks::find(int rank) const {
  for (int local = 0; local < size(); ++local)
    if (this->rank(local) == rank) return local;
  return -1;
}

void LocalRanks::enter(const CallHeader& call) {
  RankBlock& block = segment_.rank(self_);
  block.call_version.fetch_add(1, std::memory_order_acq_rel);
  block.call = call;
  block.call_version.fetch_add(1, std::memory_order_release);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.inside.store(1, std::memory_order_relaxed);
}

void LocalRanks::leave() {
  RankBlock& block = segment_.rank(self_);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.inside.store(0, std::memory_order_relaxed);
}

void LocalRanks::wake(int local) {
  RankBlock& block = segment_.rank(local);
  block.wake_count.fetch_add(1);
  if (block.asleep.load() != 0) futex(block.wake_count, FUTEX_WAKE, 64, nullptr);
}

std::uint32_t LocalRanks::wake_count() const {
  return segment_.rank(self_).wake_count.load();
}

void LocalRanks::wait(std::uint32_t seen, std::chrono::microseconds most) {
  RankBlock& block = segment_.rank(self_);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
  block.asleep.store(1);
  const timespec timeout{static_cast<time_t>(most.count() / 1000000),
                         static_cast<long>(most.count() % 1000000) * 1000};
  if (block.wake_count.load() == seen) futex(block.wake_count, FUTEX_WAIT, seen, &timeout);
  block.asleep.store(0);
  block.alive_ns.store(now_ns(), std::memory_order_relaxed);
}

bool LocalRanks::dead(int local) const {
  const int fd = pidfds_[static_cast<std::size_t>(local)];
  const int pid = local_ranks_[static_cast<std::size_t>(local)].pid;
  if (fd < 0) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

void LocalRanks::throw_failure() const {
  const SharedFailure& failure = segment_.failure();
  if (failure.state.load(std::memory_order_acquire) == 2)
    throw PeerError(failure.rank, text_of(failure.text));
}

int LocalRanks::lost(const std::vector<int>& awaited) const {
  for (const int local : awaited)
    if (local != self_ && (segment_.rank(local).left.load() != 0 || dead(local))) return local;
  return -1;
}

void LocalRanks::fail_lost(int local) {
  const bool left = segment_.rank(local).left.load() != 0;
  const std::string text =
      fmt::format("{} {}; {}", name(local),
                  left ? "has left" : "is gone: its process ended without a word", describe(local));
  fail(rank(local), text);
  throw_failure();
  throw PeerError(rank(local), text);
}

void LocalRanks::fail(int rank, const std::string& text) noexcept {
  SharedFailure& failure = segment_.failure();
  std::uint32_t none = 0;
  if (failure.state.compare_exchange_strong(none, 1)) {
    failure.rank = rank;
    copy_text(failure.text, text);
    failure.state.store(2, std::memory_order_release);
  }
  for (int local = 0; local < size(); ++local) wake(local);
}

double LocalRanks::silence(int local) const {
  return static_cast<double>(now_ns() - segment_.rank(local).alive_ns.load()) / 1e9;
}

int LocalRanks::suspect(const std::vector<int>& awaited, const std::vector<char>& arrived) const {
  for (const int local : awaited)
    if (!arrived[static_cast<std::size_t>(local)]) return local;
  for (const int local : awaited)
    if (process_state(local_ranks_[static_cast<std::size_t>(local)].pid) == 'T') return local;
  for (const int local : awaited)
    if (silence(local) > kSilent) return local;
  return awaited.empty() ? -1 : awaited.front();
}

std::string LocalRanks::name(int local) const {
  const LocalRank& peer = local_ranks_[static_cast<std::size_t>(local)];
  return fmt::format("rank {} (pid {})", peer.rank, peer.pid);
}

std::string LocalRanks::describe(int local) const {
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
  const char state = process_state(local_ranks_[static_cast<std::size_t>(local)].pid);
  if (state == 'T' || state == 't') text += "; the process is stopped";
  return text;
}

}  // namespace atl::comm::shared
