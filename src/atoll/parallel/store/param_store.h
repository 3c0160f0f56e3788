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

/// Writes the values of the whole parameter `param` to `whole`, which has the shape of `param`.
using FillParam = std::function<void(const nn::Param& param, const Tensor& whole)>;

/// One round of gradient accumulation: each rank runs one micro-batch or none. In a pipeline a step
/// has one round, with all micro-batches of the step.
struct Round {
  std::int64_t index = 0;
  bool last = true;
  /// The ranks of the shard group that have a micro-batch in this round, ascending; empty: all.
  std::span<const int> contributors = {};
};

/// Gives a model's parameters their memory, and makes values and gradients ready for each pass. A
/// store decides which rank keeps which values and gradients. Each policy has one file,
/// store_<name>. What all stores have in common is not virtual: the layout, and the values and
/// gradients that this rank's optimizer updates.
///
/// A step has one or more rounds: begin_round(), then the passes. After the last round come
/// reduce(), the optimizer's update, and publish(). All ranks make the same calls, even a rank that
/// has no micro-batch in a round.
class ParamStore {
 public:
  virtual ~ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// Asks `plan` for the memory of the store.
  virtual void request(MemoryPlan& plan, const Schedule& schedule) = 0;
  /// Points every Param whose memory is permanent into the arena, and fills the constants.
  virtual void bind(const Arena& arena) = 0;

  /// Called before and after each pass of a stage. From acquire() to release() the values of the
  /// stage's Params are valid. A pass that makes gradients also has the memory of their gradients,
  /// and adds to it. `idle`: this rank has no micro-batch in the round.
  virtual void acquire(Run& run, const StagePass& pass, bool idle) = 0;
  virtual void release(Run& run, const StagePass& pass, bool idle) = 0;
  /// Returns when grads() holds the sum over all rounds and ranks.
  virtual void reduce(Run& run) = 0;
  /// To be called after the update of values(): begins to send the new values to the other ranks.
  virtual void publish(Run& run) = 0;
  /// Waits for every transfer under way: then this rank has what the other ranks have published.
  /// If transfers failed, throws the error of the first one, after all transfers have ended.
  virtual void settle() = 0;

  /// What a checkpoint holds of the store, besides values and the optimizer's state.
  virtual std::vector<optim::StateTensor> state() const { return {}; }
  /// More state for a checkpoint, which does not have one number for each element: f32 matrices,
  /// the same on all ranks, always in the same order.
  virtual std::vector<Tensor> factors() const { return {}; }
  /// The whole flat vector of values that passes read. After settle() it has the same bits on all
  /// ranks of the shard group. Undefined where no rank has it whole.
  virtual Tensor computed_with() const { return values_; }
  /// To be called after the pieces of pieces_to_fill() were filled.
  virtual void values_filled() {}

  /// Gives parameters their values, but for those that are packed, whose bytes come from a file
  /// alone. For each parameter of which this rank holds any element, one
  /// after the other, calls `fill` with memory for the whole parameter, and copies this rank's
  /// elements from there. Does not communicate: `fill` must give the same values on all ranks.
  virtual void fill(const FillParam& fill);

  /// `shard`: the ranks that share one copy of the model. `replicate`: with several copies, the
  /// ranks that hold the same part, one of each copy; else null. To be called before the first
  /// pass; both must outlive the store. A store of one rank needs neither.
  void connect(comm::Group& shard, comm::Group* replicate) {
    shard_ = &shard;
    replicate_ = replicate;
  }

  const FlatLayout& layout() const { return layout_; }
  /// The same as in FlatLayout.
  std::span<nn::Param* const> params() const { return layout_.params(); }
  std::span<nn::Param* const> trained() const { return layout_.trained(); }
  std::span<nn::Param* const> frozen() const { return layout_.frozen(); }
  std::int64_t offset(std::size_t i) const { return layout_.offset(i); }
  /// The spec of the whole flat vector of trained parameters.
  Spec flat() const { return layout_.flat(); }

  /// The flat values that this rank's optimizer updates. ranges() says where its elements lie in
  /// values() and in grads().
  Tensor values() const { return values_; }
  /// The flat gradients for that update, in the compute dtype.
  Tensor grads() const { return grads_; }
  std::span<const optim::ParamRange> ranges() const { return ranges_; }

  /// Sets every parameter to its initial value, a pure function of the seed, the parameter's number
  /// and the element. The number is Param::number or, where that is -1, the place in params().
  void initialise(Run& run, std::uint64_t seed);
  /// On rank `reader` of the shard group, fills `packed` with `ranges` (ascending) of the flat
  /// vector of values, one after the other, in the dtype of the vector: see read_ranges. Calls
  /// settle() first. Every rank of the shard group must call it.
  void read_whole(std::span<const ElementRange> ranges, int reader, const Tensor& packed);
  /// To be called before the passes of each round.
  void begin_round(const Round& round);
  /// Whether the current round is the first of its step.
  bool begins_step() const { return round_.index == 0; }
  /// For parameters that another pipeline rank trains too: `finish` adds that rank's gradients to
  /// the gradients of `params`. reduce() calls `finish` after all passes; only then are these
  /// gradients summed over the data-parallel ranks. To be called before request().
  void finish_late(std::vector<const nn::Param*> params, std::function<void()> finish) {
    late_ = std::move(params);
    finish_late_ = std::move(finish);
  }
  /// The Euclidean norm of the whole gradient, after reduce(): the same bits however data-parallel
  /// ranks share the gradient. Infinite or NaN if an element is. Every rank of the shard group and
  /// of Model::parts must call it.
  double grad_norm(Run& run);
  /// For a pipeline, grad_norm() in two steps. First: the sums of squares of all blocks
  /// (norm_blocks of layout().ranges()), in order. Every rank of the shard group must call it.
  virtual std::vector<double> squares_of_blocks(Run& run);
  /// Second: the norm. `squares` is the sum over all blocks of this rank's part of the parameters
  /// (Model::parts), from all stages. Every rank of Model::parts must call it.
  double norm_of(double squares);
  /// After a failed step: waits for every transfer under way, and ignores their errors.
  void abandon() noexcept;
  /// Seconds since the beginning that this rank has waited for other ranks: for parameters, for
  /// gradients, and in layers whose work several ranks share.
  double waited_seconds() const {
    return waited_seconds_ + (tensor_ == nullptr ? 0 : tensor_->waited_seconds) +
           (context_ == nullptr ? 0 : context_->waited_seconds) +
           (expert_ == nullptr ? 0 : expert_->waited_seconds);
  }

 protected:
  /// `training`: whether there are gradients. The model must outlive the store.
  ParamStore(nn::Model& model, bool training, const LayoutOptions& layout = {});

  /// The memory of frozen parameters and of constants: for request() and bind() of a store.
  void request_fixed(MemoryPlan& plan);
  void bind_fixed(const Arena& arena);
  /// A view of params()[i] in `flat`, whose first element is element `begin` of the flat vector.
  Tensor view(const Tensor& flat, std::int64_t begin, std::size_t i) const;
  bool training() const { return training_; }
  void set_vectors(Tensor values, Tensor grads) { values_ = values, grads_ = grads; }
  /// For a rank that updates only its part: `ranges` of number `rank` in the layout.
  void set_part(std::vector<optim::ParamRange> ranges, int rank);
  comm::Group* shard_group() const { return shard_; }
  comm::Group* replicate_group() const { return replicate_; }
  const Round& round() const { return round_; }
  /// True on the first call after begin_round().
  bool enter_round() { return std::exchange(round_is_new_, false); }
  /// Sums the gradients of trained()[first] to trained()[end - 1] over the ranks of
  /// Param::shared_by. The first element of `flat` is element `begin` of the flat vector. A store
  /// calls it once these gradients are complete on this rank. Returns when the sums are there.
  void sum_shared(std::size_t first, std::size_t end, const Tensor& flat, std::int64_t begin);
  void sum_along(const nn::Axis& axis, std::size_t first, std::size_t end, const Tensor& flat,
                 std::int64_t begin);
  /// Whether the public finish_late() named this parameter.
  bool is_late(const nn::Param* param) const;
  void finish_late() {
    if (finish_late_) finish_late_();
  }
  /// Waits for `work`, and adds the seconds to waited_seconds().
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
  std::vector<int> contributors_;  // round_.contributors is a view of this vector
  bool round_is_new_ = false;
  double waited_seconds_ = 0;
  int frozen_request_ = -1;
  std::vector<int> packed_requests_;  // of frozen parameters that are packed, in their order
  std::vector<int> constant_requests_;
  std::vector<const nn::Param*> late_;
  std::function<void()> finish_late_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
