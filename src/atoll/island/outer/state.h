#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/island/outer/optimizer.h"
#include "atoll/island/outer/state_part.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// What all islands hold alike of one fragment after some outer step (with gossip, what this island
/// holds), or a rank's part of that. Never changed once it is the state, so that it can be read,
/// sent and saved while the next one is on its way.
struct FragmentState {
  std::int64_t outer_step = 0;  ///< this many outer steps of the run are in it
  std::vector<float> values;    ///< the anchor, then the outer optimizer's vectors, each as long
  std::size_t elements = 0;     ///< of the anchor, here
  StateHash hash;               ///< of all ranks' parts together

  std::span<const float> anchor() const { return {values.data(), elements}; }
  std::span<const float> optimizer() const { return std::span(values).subspan(elements); }
};

/// Makes the hash of a whole state of what one rank's part adds to it, with the other ranks. Empty:
/// this rank has all of it.
using WholeHash = std::function<StateHash(const StateHash& own)>;

/// The anchor of the run: the parameters that islands agree on, by fragment, and what the outer
/// optimizer keeps; or a rank's part of each fragment. An outer step is made beside the present
/// state and becomes it when all islands are known to have the same. Safe to use from several
/// threads.
class OuterState {
 public:
  /// `fragment_elements`: parameters of each fragment, all of which are here. `optimizer` must
  /// outlive this.
  OuterState(const std::vector<std::size_t>& fragment_elements, const OuterOptimizer& optimizer);
  /// Only these parts of the fragments are here.
  OuterState(std::vector<StatePart> parts, const OuterOptimizer& optimizer);

  int num_fragments() const { return static_cast<int>(parts_.size()); }
  const StatePart& part(int fragment) const;
  /// Parameters of the fragment that are here.
  std::size_t elements(int fragment) const;
  /// Floats in FragmentState::values of a fragment.
  std::size_t values_size(int fragment) const;
  /// Outer steps that are in it; -1: it has no state yet.
  std::int64_t outer_step() const;
  std::vector<StateHash> hashes() const;
  /// Null before begin() or replace().
  std::shared_ptr<const FragmentState> current(int fragment) const;

  /// The state of outer step 0: these parameters, and an optimizer that has seen nothing.
  void begin(int fragment, std::span<const float> anchor, const WholeHash& whole = {});
  /// State that was fetched or saved: `values` as FragmentState has them. Returns its hash.
  StateHash replace(int fragment, std::int64_t outer_step, std::vector<float> values,
                    const WholeHash& whole = {});
  /// Outer steps that the run has done, where replace() was called for each fragment.
  void set_outer_step(std::int64_t outer_step);

  /// Outer step number outer_step() of a fragment while it is made from the mean pseudo-gradient,
  /// part by part as that comes.
  class Step {
   public:
    /// `mean` is that of the elements from `begin` on. Every element must be added once, in any
    /// order; several threads may do so.
    void add(std::size_t begin, std::span<const float> mean);

   private:
    friend class OuterState;
    Step(const OuterOptimizer& optimizer, int fragment, const OuterStepInfo& info,
         std::shared_ptr<const FragmentState> from, std::shared_ptr<FragmentState> to);
    std::size_t num_to_add() const { return is_of_states_ ? to_->values.size() : from_->elements; }

    const OuterOptimizer& optimizer_;
    int fragment_;
    OuterStepInfo info_;
    std::shared_ptr<const FragmentState> from_;
    std::shared_ptr<FragmentState> to_;
    std::atomic<std::size_t> num_added_{0};
    bool is_of_states_ = false;
  };
  /// Begins one; any number may be begun, for attempts that come to nothing.
  /// `info.k` is filled in.
  std::unique_ptr<Step> begin_step(int fragment, OuterStepInfo info = {}) const;
  /// With gossip: the mean that is added is that of whole states, FragmentState::values, and is the
  /// result.
  std::unique_ptr<Step> begin_mean_of_states(int fragment) const;
  /// With gossip: FragmentState::values as they would be after an outer step of this island alone,
  /// which partners exchange. An empty `delta`: as they are.
  std::vector<float> values_after(int fragment, std::span<const float> delta) const;
  /// Keeps the result of the step beside the present state, instead of an earlier one. Returns its
  /// hash, or what this rank's part adds to it: then the earlier one stays until seal().
  StateHash prepare(const Step& step);
  /// All ranks have prepared their parts, which together have this hash.
  void seal(const StateHash& hash);
  /// The same with the whole mean at once.
  StateHash prepare(int fragment, std::span<const float> mean_delta);
  /// Makes that the state. False when it is not there or has another hash: nothing changed then.
  bool swap(std::int64_t outer_step, int fragment, const StateHash& hash);

 private:
  std::shared_ptr<FragmentState> make(int fragment, std::int64_t outer_step) const;

  std::vector<StatePart> parts_;
  const OuterOptimizer& optimizer_;
  mutable std::mutex mutex_;
  std::int64_t outer_step_ = -1;
  std::vector<std::shared_ptr<const FragmentState>> current_;
  // The result of the step, and of one that is not sealed yet.
  std::shared_ptr<const FragmentState> shadow_;
  int shadow_fragment_ = -1;
  std::shared_ptr<FragmentState> unsealed_;
  int unsealed_fragment_ = -1;
};

}  // namespace atl::island
