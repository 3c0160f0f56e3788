#include "atoll/comm/threads/presence.h"

#include <fmt/format.h>

#include <thread>

#include "atoll/comm/world.h"

namespace atl::comm {

using Clock = std::chrono::steady_clock;

// Waking a sleeper takes 10 us or more, so a rank that is nearly there is worth a short wait awake;
// a longer one would take the CPU from what runs beside the collective. Yielding, because the rank
// that is waited for may be next on this very CPU.
constexpr std::chrono::microseconds kAwake{20};

Presence::Presence(Hub& hub, int rank) : hub_(hub), rank_(rank) {}

Presence::~Presence() {
  hub_.end(rank_);
}

void Presence::enter(const Collective& collective) {
  state().call = &collective;
  const CallHeader header = make_header(collective);
  const std::lock_guard lock(state().mutex);
  state().header = header;
  state().in_call = true;
}

void Presence::leave() {
  state().call = nullptr;
  const std::lock_guard lock(state().mutex);
  state().in_call = false;
}

void Presence::meet(const Collective& collective) {
  for (const int member : collective.members) {
    if (member == rank_) continue;
    hub_.meetings(rank_, member).fetch_add(1, std::memory_order_release);
    hub_.rank(member).news.bump();
  }
  std::size_t next = 0;  // those before it are here
  wait_for([&] {
    for (; next < collective.members.size(); ++next) {
      const int member = collective.members[next];
      if (member == rank_) continue;
      const std::uint64_t mine = hub_.meetings(rank_, member).load(std::memory_order_relaxed);
      if (hub_.meetings(member, rank_).load(std::memory_order_acquire) < mine) return member;
    }
    return -1;
  });
}

void Presence::wait_for(const std::function<int()>& missing) {
  if (missing() < 0) return;
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
  return fmt::format("{} {}", state.in_call ? "it is in" : "its last call was",
                     state.header.to_string());
}

void Presence::throw_aborted() const {
  if (hub_.aborted_by() == rank_) throw PeerError(rank_, "this rank has ended with an error");
  throw PeerError(hub_.aborted_by(), fmt::format("rank {} has ended with an error: {}",
                                                 hub_.aborted_by(), hub_.why()));
}

// Sequentially consistent with give_up(): either the one who gives up sees the touch, or the touch
// sees that it did.
Presence::Touch::Touch(Presence& presence) : word_(presence.state().touching) {
  word_.store(1, std::memory_order_seq_cst);
  if (!presence.hub_.aborted()) return;
  word_.store(0, std::memory_order_seq_cst);
  word_.notify_all();
  presence.throw_aborted();
}

Presence::Touch::~Touch() {
  word_.store(0, std::memory_order_seq_cst);
  word_.notify_all();
}

}  // namespace atl::comm
