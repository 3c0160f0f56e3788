#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/comm/collectives/collectives.h"
#include "atoll/comm/collectives/ring_collectives.h"
#include "atoll/comm/world_options.h"

namespace atl::comm {

/// Carries the calls of a channel out by the algorithm that WorldOptions names.
///
/// kAuto: where ranks of three or more nodes reduce, gather or broadcast 64 KiB or more, the first
/// calls of each kind and size take turns between the algorithms. Then the ranks agree on the one
/// that took least time. The rest, all of it within one host, goes directly. Since the bits are the
/// same, nothing else depends on what is measured.
class Algorithms {
 public:
  /// `transport`: null where all groups have one rank; must outlive it, as the options.
  Algorithms(const WorldOptions& options, Transport* transport);

  /// Of a group of two ranks or more. Throws what the transport throws.
  void run(const Collective& collective);

 private:
  /// Of one kind of call, of a size between two powers of two.
  struct Trials {
    std::vector<Algorithm> candidates;
    std::vector<double> seconds;  // the least of each
    int calls = 0;
    Algorithm chosen = Algorithm::kAuto;  // until all have been tried
  };

  void run_by(Algorithm algorithm, const Collective& collective);
  void run_direct(const Collective& collective);
  void try_algorithms(const Collective& collective, Trials& trials);
  void agree(const Collective& collective, Trials& trials);
  /// Null: there is nothing to choose.
  Trials* trials_of(const Collective& collective);
  void find_nodes(const Collective& collective, bool by_host);

  const WorldOptions& options_;
  Transport* transport_;
  MessageCollectives by_messages_;
  RingCollectives by_ring_;
  RingNodes nodes_;
  std::vector<int> hosts_;
  std::map<std::uint64_t, Trials> trials_;
};

}  // namespace atl::comm
