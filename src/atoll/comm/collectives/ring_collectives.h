#pragma once

#include <cstdint>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/collectives/collectives.h"
#include "atoll/comm/collectives/ring_nodes.h"
#include "atoll/comm/collectives/ring_sum.h"
#include "atoll/comm/transport.h"

namespace atl::comm {

/// Carries collectives out by messages between neighbours of a ring, with the bits of every other
/// way. A rank has two neighbours; where nodes are hosts, a rank speaks with the ranks of its host
/// and with one rank of each neighbouring host. Bytes on each link between nodes (m = bytes of
/// data, N = nodes), for all lanes together:
///
///   all_reduce      2 m; 3 m of bf16, whose partial sums are f32
///   reduce_scatter  m for partial sums (2 m of bf16), up to m for results, and up to m more where
///                   it accumulates
///   all_gather      (N - 1) / N m
///   broadcast       m
///
/// Keeps its memory from call to call.
class RingCollectives {
 public:
  /// Through `transport`, which must outlive it.
  explicit RingCollectives(Transport* transport);
  RingCollectives(const RingCollectives&) = delete;
  RingCollectives& operator=(const RingCollectives&) = delete;

  /// Whether such a call can go round a ring: all but all_to_all and exchange, which are between
  /// pairs.
  static bool can_run(const Collective& collective);
  /// `nodes`: of its members. Throws PeerError when a neighbour calls something else, and what the
  /// transport throws.
  void run(const Collective& collective, const RingNodes& nodes);

 private:
  void compare();
  void add_peer(int member);
  void spread(int first_owner, int last_owner);
  void add_messages(int lane, std::int64_t step, int owner);
  void barrier();
  std::size_t piece_bytes(std::size_t bytes, int pieces_a_node) const;

  int world(int member) const { return call_->members[static_cast<std::size_t>(member)]; }
  /// The elements of an owner: its part, or all of a broadcast.
  std::int64_t begin_of(int owner) const;
  std::int64_t end_of(int owner) const;

  Transport* transport_;
  MessageBatch messages_;
  RingSum sum_;
  const Collective* call_ = nullptr;
  const RingNodes* nodes_ = nullptr;
  std::int64_t chunk_ = 1;  // elements of a piece
  std::vector<int> peers_;  // members
  CallHeader mine_;
  std::vector<CallHeader> theirs_;
  std::int32_t token_ = 0;
  Collective token_call_;
};

}  // namespace atl::comm
