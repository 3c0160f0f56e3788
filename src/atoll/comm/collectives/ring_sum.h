#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/collectives/collectives.h"
#include "atoll/comm/collectives/ring_nodes.h"

namespace atl::comm {

/// all_reduce and reduce_scatter on a ring of nodes, with the bits of every other way: a piece goes
/// along the chain from node 0 to the last one, each of which adds its ranks' values in rank order,
/// and then on round the ring as a result. Partial sums of bf16 travel as f32.
///
/// Time is counted in steps, of which each moves messages between neighbours. A piece that enters
/// the chain at step T reaches node h at step T + h; its result leaves the last node at the step
/// after that. One piece enters each step, so all links are busy. Before the chain begins, the
/// result of an accumulating reduce_scatter goes from its owner to node 0.
class RingSum {
 public:
  explicit RingSum(MessageBatch& messages) : messages_(messages) {}

  /// Of kAllReduce or kReduceScatter. `piece_bytes`: what one message may have at most.
  void run(const Collective& call, const RingNodes& nodes, std::size_t piece_bytes);

 private:
  /// Some elements that are summed together. `owner`: who gets the result; -1: all.
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    int owner = -1;
  };
  /// Two places that take turns: what one step brings, the next step sends.
  struct Slots {
    std::byte* of[2] = {};
    std::byte* at(std::int64_t step) const { return of[step % 2]; }
  };

  void cut(std::size_t piece_bytes);
  void cut_part(std::int64_t begin, std::int64_t end, std::int64_t chunk, int owner);
  void find_contributors();
  void make_room();
  const Piece* piece(int lane, std::int64_t k) const;

  void add_messages(int lane, std::int64_t step);
  void add_earlier_result(int lane, std::int64_t step);
  void add_contributions(int lane, std::int64_t step);
  void add_partial_sums(int lane, std::int64_t step);
  void add_results(int lane, std::int64_t step);
  void sum(std::int64_t step);
  void reduce(const Piece& piece, std::byte* result, bool result_is_partial);

  bool reduces_all() const { return call_->op == Op::kAllReduce; }
  bool leads(int lane) const { return lane == own_lane_; }
  int node_of(int member) const { return nodes_->node_of(member); }
  /// The leader of a lane in a node as a rank of the world.
  int leader(int node, int lane) const { return world(nodes_->leader(node, lane)); }
  int world(int member) const { return call_->members[static_cast<std::size_t>(member)]; }
  std::size_t bytes(const Piece& piece) const;
  std::size_t partial_bytes(const Piece& piece) const;
  std::byte* data(const Piece& piece) const;
  /// Where the owner of a piece has its result.
  std::byte* owned(const Piece& piece) const;
  /// Whether something has been summed before the chain reaches a node.
  bool has_partial_sum(int node) const { return call_->accumulate || first_node_ < node; }
  /// How many nodes the result of a piece goes on from the last one of the chain.
  int result_hops(const Piece& piece) const;

  MessageBatch& messages_;
  const Collective* call_ = nullptr;
  const RingNodes* nodes_ = nullptr;
  Dtype dtype_ = Dtype::kF32, partial_dtype_ = Dtype::kF32;
  int node_ = 0;                        // this rank's
  int own_lane_ = -1;                   // that it leads; -1: none
  int first_node_ = 0, last_node_ = 0;  // that contribute
  std::int64_t start_ = 0;              // the step at which the first piece enters the chain
  std::vector<Piece> pieces_;           // piece i goes in lane i % lanes
  std::int64_t largest_ = 0;            // elements of a piece
  std::vector<const void*> sources_;
  // Parts of scratch_.
  std::byte *partial_in_ = nullptr, *partial_out_ = nullptr;
  Slots earlier_, results_;
  std::vector<std::byte*> contributed_;  // by ranks of this node; null: by none, or this rank
  std::vector<std::byte*> widened_;      // sources and the sum as f32
  std::vector<std::byte> scratch_;
};

}  // namespace atl::comm
