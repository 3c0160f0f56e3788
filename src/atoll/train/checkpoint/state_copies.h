#pragma once

// Copies of the training state in the memory of ranks that share a model, for when some are lost.

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

/// The training state as it was after some step: on each rank its own part, and that of another
/// rank, which is the next one of those that share parameters by ZeRO, or where there are none, the
/// next of all. Where others hold the same part anyway, there is no second one. As a rank may be
/// lost while copies are made, each has those of two steps: the older ones are whole on all ranks.
class StateCopies {
 public:
  /// Of `state`, which is connected and stays where it is. Every rank must make one. Throws
  /// Error(kResource) on all ranks where there is no room for copies.
  StateCopies(TrainState& state, Ranks& ranks);

  /// Copies the state, which all ranks have after `position.step` steps. Every rank must call it.
  void take(const Position& position);

  /// The step of the newest complete copies on this rank; -1: there are none.
  std::int64_t newest() const;
  /// Whether there are copies of that step.
  bool has(std::int64_t step) const;
  /// The position at that step.
  const Position& position(std::int64_t step) const;
  /// The parts of the state of that step that this rank has: its own part, and if `with_other` the
  /// other rank's part. Views of this object's memory, ascending within a name.
  std::vector<optim::StateTensor> pieces(std::int64_t step, bool with_other) const;

  /// The old rank whose part this rank has too; -1: none.
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
  int other_ = -1, keeper_ = -1;  // whose part is here; which rank has this rank's part
  std::vector<CopiedRange> own_ranges_, other_ranges_;
  std::vector<Tensor> sources_;  // of own_ranges_, in the state
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

/// Selects from `mine`, the pieces of this rank, those that it contributes, when several ranks have
/// the same pieces and the first rank that has an element contributes it. Every rank of the group
/// must call it. Throws Error(kPeer) on all ranks when no rank has some values; the message names a
/// parameter of `whole`.
std::vector<optim::StateTensor> given_once(comm::Group& group, const parallel::FlatLayout& whole,
                                           const std::vector<optim::StateTensor>& mine);

}  // namespace atl::train
