#pragma once

#include <span>
#include <vector>

namespace atl::comm {

/// The members of a group as a ring of nodes, in rank order. A node is one rank, or neighbours in
/// rank order that share a host. Between nodes bytes go in `lanes()` rings side by side: the ring
/// of a lane connects one rank of each node, its leader.
class RingNodes {
 public:
  /// A node for each of `size` members.
  void of_ranks(int size);
  /// A node for each run of members whose host is the same; `hosts[i]` is that of member i.
  void of_hosts(std::span<const int> hosts);

  int size() const { return static_cast<int>(begin_.size()) - 1; }
  /// As many as the smallest node has ranks.
  int lanes() const { return lanes_; }
  /// The members of node h are begin(h) to begin(h + 1) - 1.
  int begin(int node) const { return begin_[static_cast<std::size_t>(node)]; }
  int node_of(int member) const { return node_of_[static_cast<std::size_t>(member)]; }
  int leader(int node, int lane) const { return begin(node) + lane; }
  int next(int node) const { return (node + 1) % size(); }
  int previous(int node) const { return (node + size() - 1) % size(); }
  /// Steps along the ring from one node to another.
  int distance(int from, int to) const { return (to - from + size()) % size(); }

 private:
  void finish(int members);

  std::vector<int> begin_, node_of_;
  int lanes_ = 1;
};

}  // namespace atl::comm
