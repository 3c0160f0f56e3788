#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/island/client/shard.h"
#include "atoll/island/outer/fragments.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/whole_ranges.h"
#include "atoll/parallel/state/whole_flat.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// What an island trains, as the ranks that exchange it see it between two steps: fragments in f32,
/// of bf16 parameters the masters. The lead has all of a fragment; or each rank has a part of it,
/// as shard_range() cuts it, whatever its layout gives it to train. Only fragments that are asked
/// for are read from the ranks that hold them, and only those that were changed are written.
/// Fragments are cut from the flat vector of the whole model (TrainState::whole_layout), so that
/// islands of different layouts exchange the same ones.
class IslandParams {
 public:
  /// How many ranks, from the first on, have a part of each fragment, and how many vectors the
  /// outer state has.
  struct Shares {
    int num_ranks = 1;
    int state_vectors = 1;
  };
  /// Every rank makes it; state and ranks must outlive it, or be replaced by regrouped(). Either
  /// the lead alone has parts, or all ranks have.
  IslandParams(const std::vector<island::Fragment>& fragments, TrainState& state, Ranks& ranks,
               const Shares& shares = {1, 1});

  void regrouped(TrainState& state, Ranks& ranks) { state_ = &state, ranks_ = &ranks; }
  int num_fragments() const { return static_cast<int>(ranges_.size()); }
  /// Where a fragment lies in the whole model's flat vector, ascending.
  const std::vector<parallel::ElementRange>& ranges(int f) const {
    return ranges_[static_cast<std::size_t>(f)];
  }
  std::int64_t whole_elements(int f) const { return parallel::num_elements(ranges(f)); }
  /// What of the fragment, packed, is this rank's part, and its elements.
  parallel::ElementRange own_part(int f) const { return part_of(f, ranks_->rank()); }
  std::size_t elements(int f) const { return static_cast<std::size_t>(own_part(f).size()); }
  int num_shares() const { return shares_.num_ranks; }
  /// Whether this rank has parts at all.
  bool has_part() const { return ranks_->rank() < shares_.num_ranks; }

  /// Collects the parts of a fragment on the ranks that have them. Every rank must call it.
  void gather(int f);
  /// Gives the ranks what is in the parts of a fragment. Every rank must call it.
  void scatter(int f);

  // All that follows is for ranks that have parts.

  /// Is the part of the fragment here, as the ranks have it or are to have it?
  bool has(int f) const { return held(f).is_here; }
  /// The part of the fragment, packed. Valid until another one is asked for.
  std::span<float> values(int f);
  /// Memory for a part that need not be read, since all of it is to be written.
  std::span<float> overwrite(int f);
  /// The ranks are to have what values() is now.
  void mark_changed(int f);
  /// Which fragments the ranks do not have yet, ascending.
  std::vector<int> changed() const;
  /// The ranks have trained on: what is here is old.
  void forget();

 private:
  struct Held {
    std::vector<float> values;
    bool is_here = false;
    bool is_changed = false;
  };

  const Held& held(int f) const { return held_[static_cast<std::size_t>(f)]; }
  Held& hold(int f);
  // Where the ranks have parts of the model: stages, or shares of products.
  struct Parts {
    std::vector<parallel::FlatRun> runs;  // of this rank
    parallel::RangesByRank gives, wants;  // what each rank reads for the lead; what it holds
  };

  parallel::ElementRange part_of(int f, int rank) const;
  Parts make_parts();
  Tensor make_room(int f);
  void gather_parts(int f);
  std::vector<parallel::HeldPiece> in_whole(std::span<const optim::StateTensor> pieces) const;
  std::vector<parallel::HeldPiece> masters() const;
  bool has_masters() const { return state_->store().flat().dtype == Dtype::kBf16; }
  parallel::RangesByRank wants() const;

  std::vector<std::vector<parallel::ElementRange>> ranges_;  // by fragment
  Shares shares_;
  TrainState* state_;
  Ranks* ranks_;
  std::vector<Held> held_;  // by fragment
  std::optional<Parts> parts_;
};

}  // namespace atl::train
