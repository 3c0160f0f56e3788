#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/island/client/shard.h"
#include "atoll/island/outer/algorithm.h"
#include "atoll/island/outer/state.h"
#include "atoll/train/island/params.h"

namespace atl::train {

/// What a rank of an island holds of the outer state, and does to it and to the parameters in
/// between steps: of each fragment its part, which may be all of it. IslandParams must have what a
/// call reads.
class IslandPart {
 public:
  /// `params` must outlive this.
  IslandPart(const island::OuterOptions& options, IslandParams& params);

  const island::OuterAlgorithm& algorithm() const { return *algorithm_; }
  island::OuterState& outer() { return *outer_; }
  const island::OuterState& outer() const { return *outer_; }
  int num_fragments() const { return outer_->num_fragments(); }
  /// The state that the parameters of a fragment grew from.
  const std::shared_ptr<const island::FragmentState>& base(int f) const {
    return base_[static_cast<std::size_t>(f)];
  }
  /// What the algorithm keeps of a fragment.
  std::vector<float>& kept(int f) { return kept_[static_cast<std::size_t>(f)]; }
  std::int64_t base_outer_step() const;

  /// The parameters as they are become the state of outer step 0.
  void start(int f, const island::WholeHash& whole);
  /// A checkpoint's state, which the parameters grew from.
  void load(int f, std::int64_t outer_step, std::vector<float> values,
            const island::WholeHash& whole);
  /// The parameters become the anchor, and nothing is under way.
  void reset(int f, std::shared_ptr<const island::FragmentState> now);
  /// The pseudo-gradient, which stays this rank's until its outer step is decided. `share`: see
  /// OuterAlgorithm::begin().
  std::shared_ptr<const std::vector<float>> hand_in(int f, double share);
  /// That was committed with what was handed in.
  void apply(int f, std::shared_ptr<const island::FragmentState> now);
  /// The anchor has moved without what was trained here. `takes_back`: what was handed in is to be
  /// handed in again.
  void rebase(int f, std::shared_ptr<const island::FragmentState> now, bool takes_back);
  /// kept() as if what was handed in of that fragment had been dropped; -1: nothing was.
  std::vector<float> kept_without_hand_in(int f, int in_flight) const;

 private:
  island::OwnFragment own(int f, std::span<float> packed);

  IslandParams& params_;
  std::unique_ptr<island::OuterOptimizer> optimizer_;
  std::unique_ptr<island::OuterAlgorithm> algorithm_;
  std::unique_ptr<island::OuterState> outer_;
  std::vector<std::shared_ptr<const island::FragmentState>> base_;  // by fragment
  std::vector<std::vector<float>> kept_;
  // What was handed in last, and the weight that it was said to have.
  std::shared_ptr<std::vector<float>> delta_;
  double share_ = 1;
};

}  // namespace atl::train
