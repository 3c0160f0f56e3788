#include "atoll/comm/shared/windows.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace atl::comm::shared {

namespace {

using Clock = std::chrono::steady_clock;

// How often a rank that waits looks whether the others still live.
constexpr auto kLook = std::chrono::milliseconds(50);
// Long enough for a peer to fill or empty a slot, short beside a time slice of the scheduler.
constexpr auto kYieldTime = std::chrono::microseconds(30);
// The same where a network has to make progress too.
constexpr auto kLookBesides = std::chrono::microseconds(200);
// Up to so many bytes each rank sends everything to all and sums everything: one step, not two.
constexpr std::size_t kSmall = 8192;

/// The header that stands for an exchange, which only some ranks call.
CallHeader exchange_header() {
  Collective exchange;
  exchange.op = Op::kExchange;
  return make_header(exchange);
}

/// Polls for a time that is shorter than falling asleep and waking; whether anything moved.
bool moves_soon(WindowMover& mover) {
  const auto end = Clock::now() + kYieldTime;
  do {
    ::sched_yield();  // so that a rank without a core of its own gets this one
    if (mover.step()) return true;
  } while (Clock::now() < end);
  return false;
}

}  // namespace

Windows::Windows(Segment segment, std::vector<LocalRank> local_ranks, int self, double timeout_s)
    : segment_(std::move(segment)),
      local_ranks_(segment_, std::move(local_ranks), self),
      timeout_s_(timeout_s),
      mover_(segment_, local_ranks_) {}

bool Windows::holds(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return holds(rank); });
}

void Windows::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       Network* besides) {
  mover_.clear();
  mover_.reserve(outgoing.size() + incoming.size());
  for (const Outgoing& out : outgoing)
    mover_.send({local_ranks_.find(out.to), MessageKind::kBytes,
                 static_cast<std::byte*>(const_cast<void*>(out.data)), out.bytes});
  for (const Incoming& in : incoming)
    mover_.receive({local_ranks_.find(in.from), MessageKind::kBytes,
                    static_cast<std::byte*>(in.data), in.bytes});
  complete(exchange_header(), besides);
}

void Windows::run(const Collective& collective) {
  places_.clear();
  for (const int rank : collective.members) places_.push_back(local_ranks_.find(rank));
  const CallHeader header = make_header(collective);
  headers_.assign(places_.size(), header);
  if (collective.op == Op::kAllToAll) {
    for (std::size_t r = 0; r < places_.size(); ++r) {
      headers_[r].to_peer = collective.parts[r + 1] - collective.parts[r];
      headers_[r].from_peer = collective.result_parts[r + 1] - collective.result_parts[r];
    }
  }
  mover_.clear();
  mover_.reserve(4 * places_.size());
  mover_.compare(places_, headers_);
  add_messages(collective, places_, kSmall, mover_);
  complete(header, nullptr);
}

void Windows::abort(const std::string& why) noexcept {
  const int self = local_ranks_.self();
  local_ranks_.fail(local_ranks_.rank(self),
                    fmt::format("{} ended with an error: {}", local_ranks_.name(self), why));
}

void Windows::complete(const CallHeader& call, Network* besides) {
  local_ranks_.throw_failure();
  local_ranks_.enter(call);
  const auto start = Clock::now();
  auto looked = start;
  while (!mover_.done()) {
    const std::uint32_t seen = local_ranks_.wake_count();
    if (mover_.step()) continue;
    mover_.tell();
    if (besides != nullptr) besides->progress();
    if (moves_soon(mover_)) continue;
    local_ranks_.wait(seen, besides != nullptr ? kLookBesides : kLook);
    local_ranks_.throw_failure();
    const auto now = Clock::now();
    if (now - looked < kLook) continue;
    looked = now;
    // What a rank sent before it ended is taken first.
    const int lost = local_ranks_.lost(mover_.awaited());
    if (lost >= 0 && !mover_.step()) local_ranks_.fail_lost(lost);
    if (std::chrono::duration<double>(now - start).count() > timeout_s_) time_out();
  }
  mover_.tell();
  local_ranks_.leave();
}

void Windows::time_out() {
  const int local = local_ranks_.suspect(mover_.awaited(), mover_.arrived());
  const int rank = local < 0 ? -1 : local_ranks_.rank(local);
  const std::string text =
      local < 0 ? fmt::format("not done within {} s", timeout_s_)
                : fmt::format("{} is missing after {} s; {}", local_ranks_.name(local), timeout_s_,
                              local_ranks_.describe(local));
  local_ranks_.fail(rank, text);
  local_ranks_.throw_failure();
  throw PeerError(rank, text);
}

}  // namespace atl::comm::shared
