#include "atoll/comm/collectives/ring_nodes.h"

#include <algorithm>

namespace atl::comm {

void RingNodes::of_ranks(int size) {
  begin_.clear();
  for (int member = 0; member < size; ++member) begin_.push_back(member);
  finish(size);
}

void RingNodes::of_hosts(std::span<const int> hosts) {
  begin_.clear();
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (i == 0 || hosts[i] != hosts[i - 1]) begin_.push_back(static_cast<int>(i));
  finish(static_cast<int>(hosts.size()));
}

void RingNodes::finish(int members) {
  begin_.push_back(members);
  node_of_.clear();
  lanes_ = members;
  for (int node = 0; node < size(); ++node) {
    const int ranks = begin(node + 1) - begin(node);
    lanes_ = std::min(lanes_, ranks);
    node_of_.insert(node_of_.end(), static_cast<std::size_t>(ranks), node);
  }
}

}  // namespace atl::comm
