#pragma once

// Copies of the training state in the memory of ranks that share a model, for when some are lost.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/ranks.h"
#include "atoll/train/state.h"

namespace atl::train {

/// Elements of a vector of the training state ("": the values) that lie together in the flat vector
/// of the whole model.
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

  /// The step of the newest copies that are whole here; -1: there are none.
  std::int64_t newest() const;
  /// Whether there are copies of that step.
  bool has(std::int64_t step) const;
  /// What the position was then.
  const Position& position(std::int64_t step) const;
  /// What of the state of that step is here: this rank's part, and the other's if `with_other`.
  /// Views of this object's memory, ascending within a name.
  std::vector<optim::StateTensor> pieces(std::int64_t step, bool with_other) const;

  /// The rank, of those there were, whose part is here too; -1: none's.
  int other() const { return other_; }
  /// Which rank this was, and of how many.
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
  int other_ = -1, keeper_ = -1;  // whose part is here, and who has this one's
  std::vector<CopiedRange> own_ranges_, other_ranges_;
  std::vector<Tensor> sources_;  // of own_ranges_, in the state
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

/// Ranks have pieces of a state, some of them the same: returns what of `mine` this rank gives when
/// each element comes from the first rank that has it. Every rank of the group must call it. Throws
/// Error(kPeer) on all of them, naming a parameter of the whole model's layout, when nobody has
/// some of its values.
std::vector<optim::StateTensor> given_once(comm::Group& group, const parallel::FlatLayout& whole,
                                           const std::vector<optim::StateTensor>& mine);

}  // namespace atl::train
