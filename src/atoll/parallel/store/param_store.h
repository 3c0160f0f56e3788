#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/nn/model.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/element_range.h"
#include "atoll/parallel/layout/flat_layout.h"
#include "atoll/parallel/schedule/schedule.h"
#include "atoll/parallel/store/grad_norm.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// Writes the whole value of a parameter, of its shape.
using FillParam = std::function<void(const nn::Param& param, const Tensor& whole)>;

/// One round of gradient accumulation: at most one micro-batch on each rank.
struct Round {
  std::int64_t index = 0;
  bool last = true;
  /// The ranks that have a micro-batch in this round, ascending; empty: all.
  std::span<const int> contributors = {};
};

/// Gives a model's parameters their memory, and each pass what it needs of it. A store says who has
/// which values and gradients: one file a policy, parallel/store_<name>. What all stores have in
/// common is here and not virtual: the layout, and what this rank's optimizer updates.
///
/// A step has rounds of begin_round and passes; then reduce, an update, publish. All ranks make the
/// same calls, whether they have a micro-batch in a round or not.
class ParamStore {
 public:
  virtual ~ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  virtual void request(MemoryPlan& plan, const Schedule& schedule) = 0;
  /// Points every Param that is there all the time into the arena, and fills the constants.
  virtual void bind(const Arena& arena) = 0;

  /// Before and after a pass of a stage. Between them its Params' values are there and, backward,
  /// their gradients, to be added to. `idle`: this rank has no micro-batch in the round.
  virtual void acquire(Run& run, const StagePass& pass, bool idle) = 0;
  virtual void release(Run& run, const StagePass& pass, bool idle) = 0;
  /// Returns when grads() holds the sum over all rounds and ranks.
  virtual void reduce(Run& run) = 0;
  /// After values() were updated: begins to give the others what is new.
  virtual void publish(Run& run) = 0;
  /// Returns when nothing is under way any more, and values() is what all ranks have published.
  /// Throws what the first collective that failed has thrown, once all have ended.
  virtual void settle() = 0;

  /// What a checkpoint holds beside values and the optimizer's state.
  virtual std::vector<optim::StateTensor> state() const { return {}; }
  /// The same that is no number for each element: f32 matrices, alike on all ranks, in an order
  /// that they keep.
  virtual std::vector<Tensor> factors() const { return {}; }
  /// The flat vector that all ranks of the shard group compute with, the same bits on each once
  /// settled; undefined where none has it whole.
  virtual Tensor computed_with() const { return values_; }
  /// To be called when pieces_to_fill() were filled.
  virtual void values_filled() {}

  /// Gives parameters their values: calls `fill` with each one of which this rank holds anything,
  /// one after the other, and memory for the whole of it; what this rank holds is kept. Needs no
  /// other rank: `fill` must give the same values on all of them.
  virtual void fill(const FillParam& fill);

  /// The ranks that share a copy and, with several copies, those that hold the same part of each.
  /// Before the first pass; both must outlive the store. A store of one rank needs neither.
  void connect(comm::Group& shard, comm::Group* replicate) {
    shard_ = &shard;
    replicate_ = replicate;
  }

  const FlatLayout& layout() const { return layout_; }
  /// See FlatLayout.
  std::span<nn::Param* const> params() const { return layout_.params(); }
  std::span<nn::Param* const> trained() const { return layout_.trained(); }
  std::span<nn::Param* const> frozen() const { return layout_.frozen(); }
  std::int64_t offset(std::size_t i) const { return layout_.offset(i); }
  /// The spec of the whole flat vector of what is trained.
  Spec flat() const { return layout_.flat(); }

  /// What this rank's optimizer updates: `ranges()` are places in these two.
  Tensor values() const { return values_; }
  /// In the compute dtype.
  Tensor grads() const { return grads_; }
  std::span<const optim::ParamRange> ranges() const { return ranges_; }

  /// Sets every parameter to its initial value: a pure function of (seed, parameter, element), the
  /// parameter by its number in params().
  void initialise(Run& run, std::uint64_t seed);
  /// Fills `packed` with `ranges` of the flat vector (ascending), one after the other and in its
  /// dtype, on rank `reader` of the shard group: see read_ranges. Settles. Every rank of the shard
  /// group must call it.
  void read_whole(std::span<const ElementRange> ranges, int reader, const Tensor& packed);
  void begin_round(const Round& round);
  /// Whether the round at hand is the first of its step.
  bool begins_step() const { return round_.index == 0; }
  /// The gradients of `params` are complete only once `finish` has run, which adds what ranks with
  /// other stages have of them: reduce() calls it when all passes are over, and sums these
  /// gradients over the data-parallel ranks after it. Before request().
  void finish_late(std::vector<const nn::Param*> params, std::function<void()> finish) {
    late_ = std::move(params);
    finish_late_ = std::move(finish);
  }
  /// The Euclidean norm of the whole gradient: the same bits however data-parallel ranks share it.
  /// Infinite or NaN when an element is. Every rank of the shard group, and of Model::parts, must
  /// call it.
  double grad_norm(Run& run);
  /// The same in two steps, where ranks have other stages: the sums of squares of all blocks
  /// (norm_blocks of layout().ranges()), in order; every rank of the shard group must call it. And
  /// the norm, when `squares` is the sum of all blocks of this rank's place in Model::parts; every
  /// rank of that must call it.
  virtual std::vector<double> squares_of_blocks(Run& run);
  double norm_of(double squares);
  /// Ends what begin_round to publish left under way when a step fails.
  void abandon() noexcept;
  /// Seconds that passes have waited for other ranks, since the beginning: for parameters and
  /// gradients, and within layers whose work ranks share.
  double waited_seconds() const {
    return waited_seconds_ + (tensor_ == nullptr ? 0 : tensor_->waited_seconds) +
           (context_ == nullptr ? 0 : context_->waited_seconds) +
           (expert_ == nullptr ? 0 : expert_->waited_seconds);
  }

 protected:
  /// `training`: are there gradients? The model must outlive the store.
  ParamStore(nn::Model& model, bool training, const LayoutOptions& layout = {});

  /// Memory for what is frozen, and for constants; used by request() and bind().
  void request_fixed(MemoryPlan& plan);
  void bind_fixed(const Arena& arena);
  /// A view of params()[i] in a flat vector that begins with element `begin`.
  Tensor view(const Tensor& flat, std::int64_t begin, std::size_t i) const;
  bool training() const { return training_; }
  void set_vectors(Tensor values, Tensor grads) { values_ = values, grads_ = grads; }
  /// This rank updates a part only: what `rank` of those that share the layout has.
  void set_part(std::vector<optim::ParamRange> ranges, int rank);
  comm::Group* shard_group() const { return shard_; }
  comm::Group* replicate_group() const { return replicate_; }
  const Round& round() const { return round_; }
  /// Whether this is the first call since begin_round.
  bool enter_round() { return std::exchange(round_is_new_, false); }
  /// Adds up what the ranks of Param::shared_by have of the gradients of trained()[first] to
  /// trained()[end - 1], which `flat` has from element `begin` on. For a store to call once these
  /// are complete on this rank.
  void sum_shared(std::size_t first, std::size_t end, const Tensor& flat, std::int64_t begin);
  void sum_along(const nn::Axis& axis, std::size_t first, std::size_t end, const Tensor& flat,
                 std::int64_t begin);
  /// See finish_late.
  bool is_late(const nn::Param* param) const;
  void finish_late() {
    if (finish_late_) finish_late_();
  }
  /// Waits, and counts the seconds.
  void wait(comm::Work& work);

 private:
  FlatLayout layout_;
  const nn::Axis* tensor_;
  const nn::Axis* context_;
  const nn::Axis* expert_;
  const nn::Axis* parts_;
  bool training_;
  std::vector<optim::ParamRange> ranges_;
  GradNorm norm_;
  comm::Group* shard_ = nullptr;
  comm::Group* replicate_ = nullptr;
  Round round_;
  std::vector<int> contributors_;  // round_.contributors is a view of it
  bool round_is_new_ = false;
  double waited_seconds_ = 0;
  int frozen_request_ = -1;
  std::vector<int> constant_requests_;
  std::vector<const nn::Param*> late_;
  std::function<void()> finish_late_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
