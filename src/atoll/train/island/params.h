#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/island/outer/fragments.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/whole_flat.h"
#include "atoll/parallel/whole_ranges.h"
#include "atoll/train/ranks.h"
#include "atoll/train/state.h"

namespace atl::train {

/// What an island trains, as its lead sees it between two steps: fragments in f32, of bf16
/// parameters the masters. Only fragments that are asked for are read from the ranks that hold
/// them, and only those that were changed are written, so that no rank but the lead ever has more
/// of the model than its layout gives it, and the lead one fragment. Fragments are cut from the
/// flat vector of the whole model (TrainState::whole_layout), so that islands of different layouts
/// exchange the same ones.
class IslandParams {
 public:
  /// Every rank makes it; state and ranks must outlive it, or be replaced by regrouped().
  IslandParams(const std::vector<island::Fragment>& fragments, TrainState& state, Ranks& ranks);

  void regrouped(TrainState& state, Ranks& ranks) { state_ = &state, ranks_ = &ranks; }
  int num_fragments() const { return static_cast<int>(ranges_.size()); }
  /// Where a fragment lies in the whole model's flat vector, ascending.
  const std::vector<parallel::ElementRange>& ranges(int f) const {
    return ranges_[static_cast<std::size_t>(f)];
  }
  std::size_t elements(int f) const {
    return static_cast<std::size_t>(parallel::num_elements(ranges(f)));
  }

  /// Collects a fragment on the lead. Every rank must call it.
  void gather(int f);
  /// Gives the ranks what the lead has of a fragment. Every rank must call it.
  void scatter(int f);

  // All that follows is the lead's.

  /// Is the fragment here, as the ranks have it or are to have it?
  bool has(int f) const { return held(f).is_here; }
  /// The fragment, packed. Valid until another one is asked for.
  std::span<float> values(int f);
  /// Memory for a fragment that need not be read, since all of it is to be written.
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

  Parts make_parts();
  void gather_parts(int f, const Tensor& packed);
  std::vector<parallel::HeldPiece> in_whole(std::span<const optim::StateTensor> pieces) const;
  std::vector<parallel::HeldPiece> masters() const;
  bool has_masters() const { return state_->store().flat().dtype == Dtype::kBf16; }
  parallel::RangesByRank wants() const;

  std::vector<std::vector<parallel::ElementRange>> ranges_;  // by fragment
  TrainState* state_;
  Ranks* ranks_;
  std::vector<Held> held_;  // by fragment
  std::optional<Parts> parts_;
};

}  // namespace atl::train
