#include "atoll/comm/threads/presence.h"

#include <fmt/format.h>

#include <hwy/cache_control.h>
#include <chrono>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/comm/world.h"

namespace atl::comm {

using Clock = std::chrono::steady_clock;

namespace {

// Some microseconds: a rank with a core of its own that is waited for is there by then, or is not
// coming soon. A call of the scheduler takes as long as a meeting.
constexpr int kLooks = 100;
// Where ranks share cores, for one that is on another core and nearly there.
constexpr int kFewLooks = 12;
// Waking a sleeper takes 10 us or more, so a rank that is nearly there is worth a short wait awake;
// a longer one would take the CPU from what runs beside the collective. Yielding, because the rank
// that is waited for may be next on this very CPU.
constexpr std::chrono::microseconds kAwake{20};

}  // namespace

Presence::Presence(Hub& hub, int rank) : hub_(hub), rank_(rank) {}

Presence::~Presence() {
  hub_.end(rank_);
}

void Presence::enter(const Collective& collective) {
  const CallHeader header = make_header(collective);
  fingerprint_ = fingerprint(header);
  const std::lock_guard lock(state().mutex);
  state().header = header;
  state().in_call.store(true, std::memory_order_relaxed);
}

void Presence::leave() {
  state().in_call.store(false, std::memory_order_relaxed);
}

void Presence::meet_in(const Collective& collective) {
  for (const int member : collective.members) {
    if (member == rank_) continue;
    Meeting& mine = hub_.meeting(rank_, member);
    mine.call = &collective;
    mine.data = static_cast<std::byte*>(collective.data.raw());
    mine.fingerprint = fingerprint_;
  }
  come(collective);
  wait_for_all(collective);
  compare(collective);
}

void Presence::meet_again(const Collective& collective) {
  come(collective);
  wait_for_all(collective);
}

// Sequentially consistent with sleep_for(): either who sleeps sees the new count, or is seen here.
void Presence::come(const Collective& collective) {
  for (const int member : collective.members) {
    if (member == rank_) continue;
    std::atomic<std::uint64_t>& count = hub_.meeting(rank_, member).count;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }
  for (const int member : collective.members) {
    if (member != rank_) hub_.rank(member).news.bump_if_watched();
  }
}

void Presence::wait_for_all(const Collective& collective) {
  std::size_t next = 0;  // those before it are here
  wait_for([&] {
    for (; next < collective.members.size(); ++next) {
      const int member = collective.members[next];
      if (member == rank_) continue;
      const std::uint64_t mine = hub_.meeting(rank_, member).count.load(std::memory_order_relaxed);
      if (hub_.meeting(member, rank_).count.load(std::memory_order_seq_cst) < mine) return member;
    }
    return -1;
  });
}

void Presence::compare(const Collective& collective) const {
  for (const int member : collective.members) {
    if (member == rank_ || hub_.meeting(member, rank_).fingerprint == fingerprint_) continue;
    RankState& state = hub_.rank(member);
    const std::lock_guard lock(state.mutex);
    compare_calls(make_header(collective), state.header, member);
    ATOLL_CHECK(false, "{}: the same headers have two fingerprints", collective.to_string());
  }
}

void Presence::wait_long(const std::function<int()>& missing) {
  const int looks = hub_.has_a_core_each() ? kLooks : kFewLooks;
  for (int look = 0; look < looks; ++look) {
    hwy::Pause();
    if (missing() < 0) return;
  }
  const Clock::time_point end = Clock::now() + kAwake;
  do {
    std::this_thread::yield();
    if (missing() < 0) return;
  } while (Clock::now() < end);
  sleep_for(missing);
}

void Presence::sleep_for(const std::function<int()>& missing) {
  const auto timeout =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(hub_.timeout_s()));
  const Clock::time_point deadline = Clock::now() + timeout;
  const WaitWord::Watch watch(state().news);
  for (;;) {
    const std::uint32_t seen = state().news.value();
    const int rank = missing();
    if (rank < 0) return;
    // What a rank has done before it gave up or ended still counts: so looked at once more.
    if (hub_.aborted()) {
      if (missing() < 0) return;
      throw_aborted();
    }
    if (hub_.rank(rank).ended.load()) {
      if (missing() != rank) continue;
      throw PeerError(rank, fmt::format("rank {} has ended; {}", rank, last_call_of(rank)));
    }
    if (state().news.wait(seen, deadline)) continue;
    const int late = missing();
    if (late < 0) return;
    throw PeerError(late, fmt::format("rank {} is not here after {} s; {}", late, hub_.timeout_s(),
                                      last_call_of(late)));
  }
}

void Presence::give_up(const std::string& why) noexcept {
  hub_.abort(rank_, why);
  for (int other = 0; other < hub_.size(); ++other) {
    if (other != rank_) hub_.rank(other).touching.wait(1, std::memory_order_seq_cst);
  }
}

std::string Presence::last_call_of(int rank) const {
  RankState& state = hub_.rank(rank);
  const std::lock_guard lock(state.mutex);
  if (state.header.sequence == 0) return "it has made no call yet";
  const bool in_call = state.in_call.load(std::memory_order_relaxed);
  return fmt::format("{} {}", in_call ? "it is in" : "its last call was", state.header.to_string());
}

void Presence::throw_aborted() const {
  if (hub_.aborted_by() == rank_) throw PeerError(rank_, "this rank has ended with an error");
  throw PeerError(hub_.aborted_by(), fmt::format("rank {} has ended with an error: {}",
                                                 hub_.aborted_by(), hub_.why()));
}

// Sequentially consistent with give_up(): either the one who gives up sees the touch, or the touch
// sees that it did.
Presence::Touch::Touch(Presence& presence) : presence_(presence), word_(presence.state().touching) {
  word_.store(1, std::memory_order_seq_cst);
  if (!presence.hub_.aborted()) return;
  end();
  presence.throw_aborted();
}

// Only who gives up waits for it, having said so before.
void Presence::Touch::end() {
  word_.store(0, std::memory_order_seq_cst);
  if (presence_.hub_.aborted()) word_.notify_all();
}

}  // namespace atl::comm
