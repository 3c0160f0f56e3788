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
constexpr auto kAwake = std::chrono::microseconds(30);
// How often, when a network wants to be looked after too.
constexpr auto kLookBesides = std::chrono::microseconds(200);
// Up to here every rank sends all to all and sums all: one journey instead of two.
constexpr std::size_t kSmall = 8192;

/// What others are shown of an exchange, of which only some ranks know.
CallHeader exchange_header() {
  Collective exchange;
  exchange.op = Op::kExchange;
  return make_header(exchange);
}

/// Whether it moves again within a time that is not worth sleeping.
bool moves_soon(Movement& movement) {
  const auto end = Clock::now() + kAwake;
  do {
    ::sched_yield();  // so that a rank without a core of its own gets this one
    if (movement.step()) return true;
  } while (Clock::now() < end);
  return false;
}

}  // namespace

Windows::Windows(Segment segment, std::vector<Peer> peers, int self, double timeout_s)
    : segment_(std::move(segment)),
      peers_(segment_, std::move(peers), self),
      timeout_s_(timeout_s),
      movement_(segment_, peers_) {}

bool Windows::holds(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return holds(rank); });
}

void Windows::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       Network* besides) {
  movement_.clear();
  movement_.reserve(outgoing.size() + incoming.size());
  for (const Outgoing& out : outgoing)
    movement_.send({peers_.find(out.to), Kind::kBytes,
                    static_cast<std::byte*>(const_cast<void*>(out.data)), out.bytes});
  for (const Incoming& in : incoming)
    movement_.receive(
        {peers_.find(in.from), Kind::kBytes, static_cast<std::byte*>(in.data), in.bytes});
  complete(exchange_header(), besides);
}

void Windows::run(const Collective& collective) {
  places_.clear();
  for (const int rank : collective.members) places_.push_back(peers_.find(rank));
  const CallHeader header = make_header(collective);
  headers_.assign(places_.size(), header);
  if (collective.op == Op::kAllToAll) {
    for (std::size_t r = 0; r < places_.size(); ++r) {
      headers_[r].to_peer = collective.parts[r + 1] - collective.parts[r];
      headers_[r].from_peer = collective.result_parts[r + 1] - collective.result_parts[r];
    }
  }
  movement_.clear();
  movement_.reserve(4 * places_.size());
  movement_.compare(places_, headers_);
  add_messages(collective, places_, kSmall, movement_);
  complete(header, nullptr);
}

void Windows::abort(const std::string& why) noexcept {
  const int self = peers_.self();
  peers_.fail(peers_.rank(self), fmt::format("{} ended with an error: {}", peers_.name(self), why));
}

void Windows::complete(const CallHeader& call, Network* besides) {
  peers_.throw_failure();
  peers_.enter(call);
  const auto start = Clock::now();
  auto looked = start;
  while (!movement_.done()) {
    const std::uint32_t bell = peers_.bell();
    if (movement_.step()) continue;
    movement_.tell();
    if (besides != nullptr) besides->progress();
    if (moves_soon(movement_)) continue;
    peers_.wait(bell, besides != nullptr ? kLookBesides : kLook);
    peers_.throw_failure();
    const auto now = Clock::now();
    if (now - looked < kLook) continue;
    looked = now;
    // What a rank sent before it ended is taken first.
    const int lost = peers_.lost(movement_.awaited());
    if (lost >= 0 && !movement_.step()) peers_.fail_lost(lost);
    if (std::chrono::duration<double>(now - start).count() > timeout_s_) time_out();
  }
  movement_.tell();
  peers_.leave();
}

void Windows::time_out() {
  const int local = peers_.suspect(movement_.awaited(), movement_.arrived());
  const int rank = local < 0 ? -1 : peers_.rank(local);
  const std::string text = local < 0
                               ? fmt::format("not done within {} s", timeout_s_)
                               : fmt::format("{} is missing after {} s; {}", peers_.name(local),
                                             timeout_s_, peers_.describe(local));
  peers_.fail(rank, text);
  peers_.throw_failure();
  throw PeerError(rank, text);
}

}  // namespace atl::comm::shared
