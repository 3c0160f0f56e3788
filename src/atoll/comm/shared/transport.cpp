#include <unistd.h>

#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/comm/shared/windows.h"

namespace atl::comm::shared {

namespace {

/// Windows of shared memory between the ranks of one host, and a network for all others. `windows`
/// null: no other rank is on this host, or memory cannot be shared.
class SharedTransport : public Transport {
 public:
  SharedTransport(std::unique_ptr<Network> network, std::unique_ptr<Windows> windows,
                  const WorldOptions& options, std::map<int, int> hosts)
      : network_(std::move(network)),
        windows_(std::move(windows)),
        options_(options),
        hosts_(std::move(hosts)) {}

  int rank() const override { return network_->rank(); }
  int size() const override { return network_->size(); }
  std::string name() const override { return network_->name(); }
  std::size_t piece_bytes() const override { return network_->piece_bytes(); }
  int host(int rank) const override { return hosts_.at(rank); }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    if (windows_ == nullptr) return network_->exchange(outgoing, incoming);
    for (auto* out : {&out_here_, &out_there_}) out->clear();
    for (auto* in : {&in_here_, &in_there_}) in->clear();
    for (const Outgoing& out : outgoing)
      (windows_->holds(out.to) ? out_here_ : out_there_).push_back(out);
    for (const Incoming& in : incoming)
      (windows_->holds(in.from) ? in_here_ : in_there_).push_back(in);
    // Network and windows at the same time: a rank of another host may wait for a rank of this host
    // that waits for a window.
    const bool there = !out_there_.empty() || !in_there_.empty();
    if (there) network_->post(out_there_, in_there_);
    if (!out_here_.empty() || !in_here_.empty()) {
      in_windows(
          [&] { windows_->exchange(out_here_, in_here_, there ? network_.get() : nullptr); });
    }
    if (there) network_->finish();
  }

  bool run(const Collective& collective) override {
    if (collective.op == Op::kExchange || windows_ == nullptr ||
        !windows_->holds(collective.members))
      return network_->run(collective);
    in_windows([&] { windows_->run(collective); });
    return true;
  }

  std::unique_ptr<Transport> open_channel(int number, std::span<const int> members) override {
    return with_windows(network_->open_network(number, members), options_, members);
  }

  void abort(const std::string& why) noexcept override {
    if (windows_ != nullptr) windows_->abort(why);
    network_->abort(why);
  }
  void give_up(int rank, const std::string& why) noexcept override {
    if (windows_ != nullptr) windows_->give_up(rank, why);
    network_->give_up(rank, why);
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
  WorldOptions options_;
  std::map<int, int> hosts_;                    // of all members
  std::vector<Outgoing> out_here_, out_there_;  // kept, so that a call allocates nothing
  std::vector<Incoming> in_here_, in_there_;
};

/// What ranks tell each other to find the ranks of their host.
struct HostInfo {
  char host[32];
  std::int32_t pid;
  std::int32_t fd;      // of the lowest rank of a host: its segment, or -1
  std::int32_t opened;  // whether this rank has it mapped
  char problem[212];
};

/// Sends `own` to all members over the network; returns all members' by rank of the world.
std::map<int, HostInfo> exchange_infos(Network& network, std::span<const int> members,
                                       const HostInfo& own) {
  std::map<int, HostInfo> infos;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (const int r : members) {
    if (r == network.rank()) continue;
    outgoing.push_back({r, &own, sizeof(HostInfo)});
    incoming.push_back({r, &infos[r], sizeof(HostInfo)});
  }
  network.exchange(outgoing, incoming);
  infos[network.rank()] = own;
  return infos;
}

bool same_host(const HostInfo& a, const HostInfo& b) {
  return std::memcmp(a.host, b.host, sizeof(a.host)) == 0;
}

/// Whether any two share a host.
bool any_share_a_host(const std::map<int, HostInfo>& infos) {
  for (const auto& [r, info] : infos)
    for (const auto& [other, theirs] : infos)
      if (r < other && same_host(info, theirs)) return true;
  return false;
}

/// The host of each rank, as the lowest rank there; a rank whose host has no windows is a host of
/// its own.
std::map<int, int> hosts_of(const std::map<int, HostInfo>& infos) {
  std::map<int, int> hosts;
  for (const auto& [r, info] : infos) {
    int lowest = r;
    bool shared = true;
    for (const auto& [other, theirs] : infos) {
      if (!same_host(info, theirs)) continue;
      lowest = std::min(lowest, other);
      shared = shared && theirs.opened != 0;
    }
    hosts[r] = shared ? lowest : r;
  }
  return hosts;
}

/// Runs `action`; its error is kept in `info`, for the other ranks.
template <typename Action>
void attempt(HostInfo& info, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    std::memcpy(info.problem, text.data(), std::min(text.size(), sizeof(info.problem) - 1));
  }
}

}  // namespace

std::unique_ptr<Transport> with_windows(std::unique_ptr<Network> network,
                                        const WorldOptions& options) {
  std::vector<int> members(static_cast<std::size_t>(network->size()));
  std::iota(members.begin(), members.end(), 0);
  return with_windows(std::move(network), options, members);
}

std::unique_ptr<Transport> with_windows(std::unique_ptr<Network> network,
                                        const WorldOptions& options, std::span<const int> members) {
  HostInfo own{};
  std::memcpy(own.host, host_id().data(), sizeof(own.host));
  own.pid = ::getpid();
  own.fd = -1;
  std::map<int, HostInfo> infos = exchange_infos(*network, members, own);
  if (!any_share_a_host(infos)) return network;
  std::vector<LocalRank> local_ranks;
  int self = 0;
  for (const auto& [r, info] : infos) {
    if (!same_host(info, own)) continue;
    if (r == network->rank()) self = static_cast<int>(local_ranks.size());
    local_ranks.push_back({r, info.pid});
  }
  const int num_here = static_cast<int>(local_ranks.size());
  std::optional<Segment> segment;
  if (self == 0 && num_here > 1) {
    attempt(own, [&] {
      segment.emplace(Segment::create(num_here));
      own.fd = segment->fd();
    });
  }
  // Every member takes part in each round, also those that are alone on their host.
  infos = exchange_infos(*network, members, own);
  const HostInfo first = infos[local_ranks.front().rank];
  if (self != 0 && first.fd >= 0)
    attempt(own, [&] { segment.emplace(Segment::open(first.pid, first.fd, num_here)); });
  own.opened = segment.has_value() ? 1 : 0;
  infos = exchange_infos(*network, members, own);
  bool shared = num_here > 1;
  for (const LocalRank& peer : local_ranks) {
    const HostInfo& info = infos[peer.rank];
    if (info.opened != 0 || !shared) continue;
    shared = false;
    if (self == 0)
      log::info("ranks {} to {} share a host but not memory, so they talk through {}: {}",
                local_ranks.front().rank, local_ranks.back().rank, network->name(),
                std::string(info.problem, ::strnlen(info.problem, sizeof(info.problem))));
  }
  std::unique_ptr<Windows> windows;
  if (shared) {
    segment->close_fd();
    windows = std::make_unique<Windows>(std::move(*segment), std::move(local_ranks), self,
                                        options.timeout_s);
  }
  return std::make_unique<SharedTransport>(std::move(network), std::move(windows), options,
                                           hosts_of(infos));
}

}  // namespace atl::comm::shared
