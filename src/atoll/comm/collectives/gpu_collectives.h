#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/collectives/gpu_links.h"

namespace atl::comm {

/// Carries collectives of a GPU's tensors out over GpuLinks, with sums in rank order by a kernel of
/// our own: the bits of every other backend, and the bytes of a ring. Calls are compared through
/// the host first, as MessageCollectives does.
///
///   reduce_scatter  each part to its owner, at once, who reduces: scratch of n parts
///   all_gather      each part to all others
///   all_reduce      both, of even parts
///   broadcast       from the root to all others
///
/// Where links have sums of their own they make those of reduce_scatter and all_reduce, of whole
/// calls: not what is added to what is there, or comes from some ranks alone, and no maxima.
class GpuCollectives {
 public:
  /// `base` reaches the ranks of the channel through the host; it must outlive this.
  GpuCollectives(Transport& base, std::unique_ptr<GpuLinks> links)
      : base_(base), links_(std::move(links)) {}

  GpuLinks& links() { return *links_; }
  /// Whether these ranks have run a call that all of them make: kExchange must come after one.
  bool is_connected(const std::vector<int>& members) const { return connected_.count(members) > 0; }
  /// All tensors are the GPU's; two ranks or more. Returns when it is done. Throws PeerError.
  void run(const Collective& call);

 private:
  using Parts = std::vector<std::int64_t>;

  void compare(const Collective& call);
  void connect(const Collective& call);
  void queue(const Collective& call);
  void reduce_scatter(const Collective& call, const Parts& parts, const Tensor& result);
  void all_gather(const Collective& call, const Parts& parts);
  void all_reduce(const Collective& call);
  void broadcast(const Collective& call);
  void all_to_all(const Collective& call);
  void exchange_pieces(const Collective& call);
  void send(int to, const Tensor& tensor);
  void receive(int from, const Tensor& tensor);
  void copy(const Tensor& from, const Tensor& to);
  bool links_sum(const Collective& call) const;
  void move(const Collective& call);
  Tensor scratch(Spec spec);

  Transport& base_;
  std::set<std::vector<int>> connected_;
  std::vector<CallHeader> mine_, theirs_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  Buffer scratch_;
  std::unique_ptr<GpuLinks> links_;
};

}  // namespace atl::comm
