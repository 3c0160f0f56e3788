#pragma once

// Copies of the training state in the memory of other ranks, from which a run goes on when ranks
// are lost.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// Elements of a vector of the training state (the name "" means values) that are contiguous in the
/// flat vector of the whole model.
struct CopiedRange {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::size_t bytes() const { return Spec{dtype, {count}}.bytes(); }
};

/// Copies of the training state after some step. Each rank keeps a copy of its own part of the
/// state, and a copy of the part of the next rank: the next among the ranks that shard parameters
/// by ZeRO, or among all ranks where none do. Where other ranks hold the same part anyway, there is
/// no copy of another rank's part. A rank may be lost while copies are made, so each rank keeps the
/// copies of two steps: the older copies are then complete on all ranks.
class StateCopies {
 public:
  /// Allocates memory for copies of `state`, which must be connected and must outlive this without
  /// moving. Every rank must make one. Throws Error(kResource) on all ranks when a rank's memory
  /// does not suffice.
  StateCopies(TrainState& state, Ranks& ranks);

  /// Copies the state and exchanges the copies; returns when all ranks have theirs. Every rank must
  /// call it, after the same step.
  void take(const Position& position);

  /// The step of the newest complete copies on this rank; -1: there are none.
  std::int64_t newest() const;
  /// Whether there are copies of that step.
  bool has(std::int64_t step) const;
  /// The position at that step, of which there must be copies.
  const Position& position(std::int64_t step) const;
  /// The copies of that step: of this rank's part, and if `with_other` of the other rank's part.
  /// Views of this object's memory, sorted by name and then by position.
  std::vector<optim::StateTensor> pieces(std::int64_t step, bool with_other) const;

  /// The rank whose part this rank has a copy of; -1: none.
  int other() const { return other_; }
  /// The number of this rank, and the number of ranks.
  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }

 private:
  struct Slot {
    std::int64_t step = -1;
    Position position;
    std::vector<std::byte> own, other;
  };
  void find_others(Ranks& ranks);
  void exchange_ranges();
  const Slot* find(std::int64_t step) const;

  TrainState& state_;
  comm::Group& group_;  // all ranks
  int rank_, num_ranks_;
  int other_ = -1, keeper_ = -1;  // the rank whose part is copied here; the rank with ours
  std::vector<CopiedRange> own_ranges_, other_ranges_;
  std::vector<Tensor> sources_;  // of own_ranges_, in the state
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

/// Selects the parts of `mine`, the pieces of this rank, that this rank contributes when several
/// ranks have the same elements, so that exactly one rank contributes each element. Returns views.
/// Every rank of the group must call it. Throws Error(kPeer) on all ranks when no rank has some of
/// the values; the message names a parameter of `whole`.
std::vector<optim::StateTensor> given_once(comm::Group& group, const parallel::FlatLayout& whole,
                                           const std::vector<optim::StateTensor>& mine);

}  // namespace atl::train
