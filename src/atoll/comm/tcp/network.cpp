#include "atoll/comm/tcp/network.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "atoll/comm/tcp/links.h"

namespace atl::comm::tcp {

namespace {

// How long a rank asks again and again before it sleeps, where there is a core for each.
constexpr auto kSpin = std::chrono::microseconds(50);
// How often a rank that sleeps looks whether somebody has noted a failure.
constexpr auto kLook = std::chrono::seconds(1);
// Up to here, divided by the ranks, all_reduce is one journey instead of two.
constexpr std::size_t kSmall = std::size_t{128} << 10;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(std::clamp(seconds, 0.001, 3.2e7) * 1000));
}

std::shared_ptr<Setup> meet(const TcpOptions& tcp, double timeout_s) {
  auto setup = std::make_shared<Setup>();
  setup->tcp = tcp;
  setup->timeout_s = timeout_s;
  setup->patience = tcp.connect_timeout_s > 0 ? tcp.connect_timeout_s : timeout_s;
  setup->rendezvous = for_threads(open_rendezvous(tcp.rendezvous, setup->patience));
  setup->gathering =
      gather(*setup->rendezvous, tcp.rank, tcp.size, tcp.generation, setup->patience);
  return setup;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

TcpNetwork::TcpNetwork(const TcpOptions& tcp, double timeout_s)
    : TcpNetwork(meet(tcp, timeout_s), "", all_ranks(tcp.size)) {}

TcpNetwork::TcpNetwork(std::shared_ptr<Setup> setup, const std::string& name,
                       std::span<const int> members)
    : setup_(std::move(setup)), rank_(setup_->tcp.rank), size_(setup_->tcp.size) {
  Links links = connect_all(*setup_->rendezvous, setup_->gathering + name, setup_->tcp, members,
                            setup_->patience);
  // Whoever spins on a core that another rank of this host needs waits for itself.
  if (links.local_ranks <= ::sysconf(_SC_NPROCESSORS_ONLN)) spin_ = kSpin;
  movement_ = std::make_unique<Movement>(std::move(links.sockets), rank_);
}

std::unique_ptr<Network> TcpNetwork::open_network(int number, std::span<const int> members) {
  const std::string name = fmt::format("/{}.{}.{}", number, members.front(), members.back());
  return std::make_unique<TcpNetwork>(setup_, name, members);
}

TcpNetwork::~TcpNetwork() {
  if (!ending_ && std::uncaught_exceptions() == 0) movement_->say_goodbye();
}

bool TcpNetwork::run(const Collective& collective) {
  if (collective.op == Op::kExchange) return false;
  headers_.assign(collective.members.size(), make_header(collective));
  if (collective.op == Op::kAllToAll) {
    for (std::size_t r = 0; r < headers_.size(); ++r) {
      headers_[r].to_peer = collective.parts[r + 1] - collective.parts[r];
      headers_[r].from_peer = collective.result_parts[r + 1] - collective.result_parts[r];
    }
  }
  movement_->clear();
  movement_->compare(collective.members, headers_);
  shared::add_messages(collective, collective.members, kSmall / headers_.size(), *movement_);
  finish();
  return true;
}

void TcpNetwork::post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  movement_->clear();
  for (const Outgoing& out : outgoing)
    movement_->send(
        {out.to, Kind::kBytes, static_cast<std::byte*>(const_cast<void*>(out.data)), out.bytes});
  for (const Incoming& in : incoming)
    movement_->receive({in.from, Kind::kBytes, static_cast<std::byte*>(in.data), in.bytes});
  step();
}

bool TcpNetwork::step() {
  try {
    return movement_->step();
  } catch (const GoneError& error) {
    lose(error.rank(), error.what());
  } catch (const PeerError& error) {
    give_up(error.rank(), error.what());
    throw;
  }
}

void TcpNetwork::progress() {
  while (!movement_->done() && step()) {
  }
}

void TcpNetwork::finish() {
  if (movement_->done()) return;
  const Clock::time_point start = Clock::now(), end = start + milliseconds(setup_->timeout_s);
  Clock::time_point moved = start;
  looked_ = start;
  while (!movement_->done()) {
    const bool some = step();
    const Clock::time_point now = Clock::now();
    if (some) moved = now;
    if (now >= end && !movement_->done()) time_out();
    if (!some && now - moved >= spin_) wait(end);
  }
}

void TcpNetwork::wait(Clock::time_point end) {
  movement_->wanted(descriptors_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  const auto most = std::min<std::chrono::milliseconds>(left, kLook);
  const int n = ::poll(descriptors_.data(), descriptors_.size(),
                       static_cast<int>(std::max<long>(most.count(), 0)));
  if (ending_) throw PeerError(rank_, "this rank ends with an error");
  if (n == 0 && Clock::now() - looked_ >= kLook) look_for_failure();
}

// Who waits for a rank that waits for a dead one need not wait until that one has noticed.
void TcpNetwork::look_for_failure() {
  std::optional<std::string> failure;
  try {
    failure = setup_->rendezvous->get(setup_->failure_key());
  } catch (const Error&) {
    // It may end before its ranks.
  }
  if (failure) lose(-1, "another rank has failed");
  looked_ = Clock::now();
}

void TcpNetwork::time_out() {
  const std::vector<int> missing = movement_->awaited();
  lose(missing.front(),
       fmt::format("rank {} did not answer within {} s; this rank waits for rank{} {}",
                   missing.front(), setup_->timeout_s, missing.size() > 1 ? "s" : "",
                   fmt::join(missing, ", ")));
}

// A rank whose connections all close may be one that has heard of somebody else's end: whoever saw
// it first has written it down.
void TcpNetwork::lose(int rank, const std::string& why) {
  if (ending_) throw PeerError(rank_, "this rank ends with an error");
  std::string text = why;
  try {
    if (const auto failure = setup_->rendezvous->get(setup_->failure_key())) {
      const std::size_t colon = failure->find(':');
      if (colon != std::string::npos) {
        text = failure->substr(colon + 1);
        std::from_chars(failure->data(), failure->data() + colon, rank);
      }
    }
  } catch (const Error&) {
    // The rendezvous may have ended with its host; then what we saw is all we know.
  }
  give_up(rank, text);
  throw PeerError(rank, text);
}

void TcpNetwork::give_up(int rank, const std::string& why) noexcept {
  if (ending_.exchange(true)) return;
  try {
    if (!setup_->rendezvous->get(setup_->failure_key()))
      setup_->rendezvous->set(setup_->failure_key(),
                              fmt::format("{}:{}", rank, why.substr(0, 4096)));
  } catch (const std::exception&) {
  }
  movement_->shut_down();
}

}  // namespace atl::comm::tcp
