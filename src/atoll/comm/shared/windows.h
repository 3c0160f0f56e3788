#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/shared/network.h"
#include "atoll/comm/shared/window_mover.h"
#include "atoll/comm/world.h"

namespace atl::comm::shared {

/// Windows of shared memory between the ranks of one host: bytes are copied into a window by one
/// rank and out of it, or straight into a sum in rank order, by another, in pieces that stay in
/// the cache.
class Windows {
 public:
  /// `local_ranks`: all ranks that share the segment, in rank order; `local_ranks[self]` is this
  /// one.
  Windows(Segment segment, std::vector<LocalRank> local_ranks, int self, double timeout_s);

  bool holds(int rank) const { return local_ranks_.find(rank) >= 0; }
  bool holds(std::span<const int> ranks) const;

  /// As Transport::exchange, between ranks of this host; `besides` makes progress meanwhile.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                Network* besides);
  /// Carries out a collective whose members are all of this host; not kExchange.
  void run(const Collective& collective);
  /// Tells all ranks of this host why this rank ends.
  void abort(const std::string& why) noexcept;
  /// Tells all ranks of this host what happened to `rank`.
  void give_up(int rank, const std::string& why) noexcept { local_ranks_.fail(rank, why); }

 private:
  void complete(const CallHeader& call, Network* besides);
  [[noreturn]] void time_out();

  Segment segment_;
  LocalRanks local_ranks_;
  double timeout_s_;
  // Kept, so that a call allocates nothing.
  WindowMover mover_;
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
