#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/shared/movement.h"
#include "atoll/comm/shared/network.h"
#include "atoll/comm/world.h"

namespace atl::comm::shared {

/// Windows of shared memory between the ranks of one host: bytes are copied into a window by one
/// rank and out of it, or straight into a sum in rank order, by another, in pieces that stay in
/// the cache.
class Windows {
 public:
  /// `peers`: all ranks that share the segment, in rank order; `peers[self]` is this one.
  Windows(Segment segment, std::vector<Peer> peers, int self, double timeout_s);

  bool holds(int rank) const { return peers_.find(rank) >= 0; }
  bool holds(std::span<const int> ranks) const;

  /// As Transport::exchange, between ranks of this host; `besides` is looked after meanwhile.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                Network* besides);
  /// Carries out a collective whose members are all of this host; not kExchange.
  void run(const Collective& collective);
  /// All ranks of this host learn at once why this one ends,
  void abort(const std::string& why) noexcept;
  /// or what happened to `rank`.
  void give_up(int rank, const std::string& why) noexcept { peers_.fail(rank, why); }

 private:
  void complete(const CallHeader& call, Network* besides);
  [[noreturn]] void time_out();

  Segment segment_;
  Peers peers_;
  double timeout_s_;
  // Kept, so that a call allocates nothing.
  Movement movement_;
  std::vector<int> places_;
  std::vector<CallHeader> headers_;
};

/// Puts windows beside `network` for those of `members` that share a host. All members must call
/// it. Where none do, it is `network` again; where the system refuses shared memory, that is said
/// in the log, once per host.
std::unique_ptr<Transport> with_windows(std::unique_ptr<Network> network,
                                        const WorldOptions& options, std::span<const int> members);
/// The same for all ranks of the network.
std::unique_ptr<Transport> with_windows(std::unique_ptr<Network> network,
                                        const WorldOptions& options);

}  // namespace atl::comm::shared
