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

#include "atoll/comm/tcp/connections.h"

namespace atl::comm::tcp {

namespace {

// How long a rank polls before it sleeps, where each rank has a core.
constexpr auto kSpin = std::chrono::microseconds(50);
// How often a sleeping rank looks at the rendezvous for a failure that another rank has noted.
constexpr auto kLook = std::chrono::seconds(1);
// Up to so many bytes, divided by the ranks, all_reduce takes one step instead of two.
constexpr std::size_t kSmall = std::size_t{128} << 10;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(std::clamp(seconds, 0.001, 3.2e7) * 1000));
}

std::shared_ptr<Setup> meet(const TcpOptions& tcp, double timeout_s) {
  auto setup = std::make_shared<Setup>();
  setup->tcp = tcp;
  setup->timeout_s = timeout_s;
  setup->connect_timeout_s = tcp.connect_timeout_s > 0 ? tcp.connect_timeout_s : timeout_s;
  setup->rendezvous = for_threads(open_rendezvous(tcp.rendezvous, setup->connect_timeout_s));
  setup->rendezvous_id =
      gather(*setup->rendezvous, tcp.rank, tcp.size, tcp.generation, setup->connect_timeout_s);
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
  Connections connections = connect_all(*setup_->rendezvous, setup_->rendezvous_id + name,
                                        setup_->tcp, members, setup_->connect_timeout_s);
  // A rank that spins on a core takes it from the rank that it waits for.
  if (connections.local_ranks <= ::sysconf(_SC_NPROCESSORS_ONLN)) spin_ = kSpin;
  mover_ = std::make_unique<TcpMover>(std::move(connections.sockets), rank_);
  descriptors_.reserve(members.size());  // how many are waited for at a time depends on their times
}

std::unique_ptr<Network> TcpNetwork::open_network(int number, std::span<const int> members) {
  const std::string name = fmt::format("/{}.{}.{}", number, members.front(), members.back());
  return std::make_unique<TcpNetwork>(setup_, name, members);
}

TcpNetwork::~TcpNetwork() {
  if (!ending_ && std::uncaught_exceptions() == 0) mover_->say_goodbye();
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
  mover_->clear();
  mover_->compare(collective.members, headers_);
  shared::add_messages(collective, collective.members, kSmall / headers_.size(), *mover_);
  finish();
  return true;
}

void TcpNetwork::post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  mover_->clear();
  for (const Outgoing& out : outgoing)
    mover_->send({out.to, MessageKind::kBytes, static_cast<std::byte*>(const_cast<void*>(out.data)),
                  out.bytes});
  for (const Incoming& in : incoming)
    mover_->receive({in.from, MessageKind::kBytes, static_cast<std::byte*>(in.data), in.bytes});
  step();
}

bool TcpNetwork::step() {
  try {
    return mover_->step();
  } catch (const PeerClosedError& error) {
    lose(error.rank(), error.what());
  } catch (const PeerError& error) {
    give_up(error.rank(), error.what());
    throw;
  }
}

void TcpNetwork::progress() {
  while (!mover_->done() && step()) {
  }
}

void TcpNetwork::finish() {
  if (mover_->done()) return;
  const Clock::time_point start = Clock::now(), end = start + milliseconds(setup_->timeout_s);
  Clock::time_point moved = start;
  looked_ = start;
  while (!mover_->done()) {
    const bool some = step();
    const Clock::time_point now = Clock::now();
    if (some) moved = now;
    if (now >= end && !mover_->done()) time_out();
    if (!some && now - moved >= spin_) wait(end);
  }
}

void TcpNetwork::wait(Clock::time_point end) {
  mover_->wanted(descriptors_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  const auto most = std::min<std::chrono::milliseconds>(left, kLook);
  const int n = ::poll(descriptors_.data(), descriptors_.size(),
                       static_cast<int>(std::max<long>(most.count(), 0)));
  if (ending_) throw PeerError(rank_, "this rank ends with an error");
  if (n == 0 && Clock::now() - looked_ >= kLook) look_for_failure();
}

// A rank may wait for a rank that waits for a dead one: it need not wait until that one has
// noticed.
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
  const std::vector<int> missing = mover_->awaited();
  lose(missing.front(),
       fmt::format("rank {} did not answer within {} s; this rank waits for rank{} {}",
                   missing.front(), setup_->timeout_s, missing.size() > 1 ? "s" : "",
                   fmt::join(missing, ", ")));
}

// A closed connection may be the consequence of another rank's end. The rank that saw the cause
// first has noted it at the rendezvous.
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
    // The rendezvous may have ended with its host. Then only the closed connection is known.
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
  mover_->shut_down();
}

}  // namespace atl::comm::tcp
