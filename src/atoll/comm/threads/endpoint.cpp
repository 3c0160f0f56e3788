#include "atoll/comm/threads/endpoint.h"

#include <fmt/format.h>

#include <hwy/cache_control.h>
#include <chrono>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/comm/world.h"

namespace atl::comm {

using Clock = std::chrono::steady_clock;

namespace {

// Turns of a busy wait, some microseconds: a rank with a core of its own comes within that time, or
// does not come soon. A call of the scheduler takes as long as a whole barrier.
constexpr int kSpins = 100;
// Where ranks share cores: for a rank that runs on another core and is nearly there.
constexpr int kFewSpins = 12;
// Waking a sleeper takes 10 us or more, so a rank that is nearly there is worth a short wait awake;
// a longer one would take the CPU from what runs beside the collective. Yielding, because the rank
// that is waited for may be next on this very CPU.
constexpr std::chrono::microseconds kYieldTime{20};

}  // namespace

Endpoint::Endpoint(ThreadChannel& channel, int rank) : channel_(channel), rank_(rank) {}

Endpoint::~Endpoint() {
  channel_.end(rank_);
}

void Endpoint::enter(const Collective& collective) {
  const CallHeader header = make_header(collective);
  fingerprint_ = fingerprint(header);
  const std::lock_guard lock(state().mutex);
  state().header = header;
  state().in_call.store(true, std::memory_order_relaxed);
}

void Endpoint::leave() {
  state().in_call.store(false, std::memory_order_relaxed);
}

void Endpoint::enter_barrier(const Collective& collective) {
  for (const int member : collective.members) {
    if (member == rank_) continue;
    BarrierSlot& mine = channel_.barrier_slot(rank_, member);
    mine.call = &collective;
    mine.data = static_cast<std::byte*>(collective.data.raw());
    mine.fingerprint = fingerprint_;
  }
  arrive(collective);
  wait_for_all(collective);
  compare(collective);
}

void Endpoint::leave_barrier(const Collective& collective) {
  arrive(collective);
  wait_for_all(collective);
}

// Sequentially consistent with sleep_for(): either a rank that falls asleep sees the new count, or
// this rank sees that it sleeps.
void Endpoint::arrive(const Collective& collective) {
  for (const int member : collective.members) {
    if (member == rank_) continue;
    std::atomic<std::uint64_t>& count = channel_.barrier_slot(rank_, member).count;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }
  for (const int member : collective.members) {
    if (member != rank_) channel_.rank(member).wakeup.bump_if_watched();
  }
}

void Endpoint::wait_for_all(const Collective& collective) {
  std::size_t next = 0;  // those before it are here
  wait_for([&] {
    for (; next < collective.members.size(); ++next) {
      const int member = collective.members[next];
      if (member == rank_) continue;
      const std::uint64_t mine =
          channel_.barrier_slot(rank_, member).count.load(std::memory_order_relaxed);
      if (channel_.barrier_slot(member, rank_).count.load(std::memory_order_seq_cst) < mine)
        return member;
    }
    return -1;
  });
}

void Endpoint::compare(const Collective& collective) const {
  for (const int member : collective.members) {
    if (member == rank_ || channel_.barrier_slot(member, rank_).fingerprint == fingerprint_)
      continue;
    RankState& state = channel_.rank(member);
    const std::lock_guard lock(state.mutex);
    compare_calls(make_header(collective), state.header, member);
    ATOLL_CHECK(false, "{}: the same headers have two fingerprints", collective.to_string());
  }
}

void Endpoint::wait_long(const std::function<int()>& missing) {
  const int spins = channel_.has_a_core_each() ? kSpins : kFewSpins;
  for (int spin = 0; spin < spins; ++spin) {
    hwy::Pause();
    if (missing() < 0) return;
  }
  const Clock::time_point end = Clock::now() + kYieldTime;
  do {
    std::this_thread::yield();
    if (missing() < 0) return;
  } while (Clock::now() < end);
  sleep_for(missing);
}

void Endpoint::sleep_for(const std::function<int()>& missing) {
  const auto timeout = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(channel_.timeout_s()));
  const Clock::time_point deadline = Clock::now() + timeout;
  const WaitWord::Watch watch(state().wakeup);
  for (;;) {
    const std::uint32_t seen = state().wakeup.value();
    const int rank = missing();
    if (rank < 0) return;
    // What a rank did before it gave up or ended still counts, so missing() is asked once more.
    if (channel_.aborted()) {
      if (missing() < 0) return;
      throw_aborted();
    }
    if (channel_.rank(rank).ended.load()) {
      if (missing() != rank) continue;
      throw PeerError(rank, fmt::format("rank {} has ended; {}", rank, last_call_of(rank)));
    }
    if (state().wakeup.wait(seen, deadline)) continue;
    const int late = missing();
    if (late < 0) return;
    throw PeerError(late, fmt::format("rank {} is not here after {} s; {}", late,
                                      channel_.timeout_s(), last_call_of(late)));
  }
}

void Endpoint::give_up(const std::string& why) noexcept {
  channel_.abort(rank_, why);
  for (int other = 0; other < channel_.size(); ++other) {
    if (other != rank_) channel_.rank(other).accessing.wait(1, std::memory_order_seq_cst);
  }
}

std::string Endpoint::last_call_of(int rank) const {
  RankState& state = channel_.rank(rank);
  const std::lock_guard lock(state.mutex);
  if (state.header.sequence == 0) return "it has made no call yet";
  const bool in_call = state.in_call.load(std::memory_order_relaxed);
  return fmt::format("{} {}", in_call ? "it is in" : "its last call was", state.header.to_string());
}

void Endpoint::throw_aborted() const {
  // It may be this rank itself, in a call on another channel: then this error can be the first that
  // its world keeps, so it says why as well.
  const int by = channel_.aborted_by();
  const std::string who = by == rank_ ? "this rank" : fmt::format("rank {}", by);
  throw PeerError(by, fmt::format("{} has ended with an error: {}", who, channel_.why()));
}

// Sequentially consistent with give_up(): either the rank that gives up sees this access, or the
// access sees that it gave up.
Endpoint::MemoryAccess::MemoryAccess(Endpoint& endpoint)
    : endpoint_(endpoint), word_(endpoint.state().accessing) {
  word_.store(1, std::memory_order_seq_cst);
  if (!endpoint.channel_.aborted()) return;
  end();
  endpoint.throw_aborted();
}

// Only a rank that gives up waits for this word, and it has set aborted() before.
void Endpoint::MemoryAccess::end() {
  word_.store(0, std::memory_order_seq_cst);
  if (endpoint_.channel_.aborted()) word_.notify_all();
}

}  // namespace atl::comm
