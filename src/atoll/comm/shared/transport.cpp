#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/comm/shared/windows.h"

namespace atl::comm::shared {

namespace {

/// A network for most, windows for those of one host.
class SharedTransport : public Transport {
 public:
  SharedTransport(std::unique_ptr<Network> network, std::unique_ptr<Windows> windows)
      : network_(std::move(network)), windows_(std::move(windows)) {}

  int rank() const override { return network_->rank(); }
  int size() const override { return network_->size(); }
  std::string name() const override { return network_->name(); }
  std::size_t piece_bytes() const override { return network_->piece_bytes(); }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    std::vector<Outgoing> out_here, out_there;
    std::vector<Incoming> in_here, in_there;
    for (const Outgoing& out : outgoing)
      (windows_->holds(out.to) ? out_here : out_there).push_back(out);
    for (const Incoming& in : incoming)
      (windows_->holds(in.from) ? in_here : in_there).push_back(in);
    // All at the same time: a rank of another host may wait for one that waits for a window here.
    const bool there = !out_there.empty() || !in_there.empty();
    if (there) network_->post(out_there, in_there);
    if (!out_here.empty() || !in_here.empty()) {
      in_windows([&] { windows_->exchange(out_here, in_here, there ? network_.get() : nullptr); });
    }
    if (there) network_->finish();
  }

  bool run(const Collective& collective) override {
    if (collective.op == Op::kExchange || !windows_->holds(collective.members))
      return network_->run(collective);
    in_windows([&] { windows_->run(collective); });
    return true;
  }

  void abort(const std::string& why) noexcept override {
    windows_->abort(why);
    network_->abort(why);
  }

 private:
  template <typename Action>
  void in_windows(const Action& action) {
    try {
      action();
    } catch (const PeerError& error) {
      network_->give_up(error.rank(), error.what());
      throw;
    }
  }

  std::unique_ptr<Network> network_;
  std::unique_ptr<Windows> windows_;
};

/// What ranks tell each other to find those of their host.
struct Card {
  char host[32];
  std::int32_t pid;
  std::int32_t fd;      // of the lowest rank of a host: its segment, or -1
  std::int32_t opened;  // whether this rank has it mapped
  char problem[212];
};

/// Every rank's card; one round through the network.
std::vector<Card> tell_all(Network& network, const Card& own) {
  const int size = network.size(), rank = network.rank();
  std::vector<Card> cards(static_cast<std::size_t>(size));
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    outgoing.push_back({r, &own, sizeof(Card)});
    incoming.push_back({r, &cards[static_cast<std::size_t>(r)], sizeof(Card)});
  }
  network.exchange(outgoing, incoming);
  cards[static_cast<std::size_t>(rank)] = own;
  return cards;
}

/// Runs `action`; keeps what it throws for the others.
template <typename Action>
void attempt(Card& card, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    std::memcpy(card.problem, text.data(), std::min(text.size(), sizeof(card.problem) - 1));
  }
}

}  // namespace

std::unique_ptr<Transport> with_windows(std::unique_ptr<Network> network,
                                        const WorldOptions& options) {
  Card own{};
  std::memcpy(own.host, host_id().data(), sizeof(own.host));
  own.pid = ::getpid();
  own.fd = -1;
  std::vector<Card> cards = tell_all(*network, own);
  std::vector<Peer> peers;
  int self = 0;
  for (int r = 0; r < network->size(); ++r) {
    const Card& card = cards[static_cast<std::size_t>(r)];
    if (std::memcmp(card.host, own.host, sizeof(own.host)) != 0) continue;
    if (r == network->rank()) self = static_cast<int>(peers.size());
    peers.push_back({r, card.pid});
  }
  const int num_here = static_cast<int>(peers.size());
  std::optional<Segment> segment;
  if (self == 0 && num_here > 1) {
    attempt(own, [&] {
      segment.emplace(Segment::create(num_here));
      own.fd = segment->fd();
    });
  }
  // Every rank takes part in each round, also those that are alone on their host.
  cards = tell_all(*network, own);
  const Card first = cards[static_cast<std::size_t>(peers.front().rank)];
  if (self != 0 && first.fd >= 0)
    attempt(own, [&] { segment.emplace(Segment::open(first.pid, first.fd, num_here)); });
  own.opened = segment.has_value() ? 1 : 0;
  cards = tell_all(*network, own);
  if (num_here == 1) return network;
  for (const Peer& peer : peers) {
    const Card& card = cards[static_cast<std::size_t>(peer.rank)];
    if (card.opened != 0) continue;
    if (self == 0)
      log::info("ranks {} to {} share a host but not memory, so they talk through {}: {}",
                peers.front().rank, peers.back().rank, network->name(),
                std::string(card.problem, ::strnlen(card.problem, sizeof(card.problem))));
    return network;
  }
  segment->close_fd();
  auto windows =
      std::make_unique<Windows>(std::move(*segment), std::move(peers), self, options.timeout_s);
  return std::make_unique<SharedTransport>(std::move(network), std::move(windows));
}

}  // namespace atl::comm::shared
