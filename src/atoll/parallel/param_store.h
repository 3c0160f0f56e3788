#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/flat_layout.h"
#include "atoll/parallel/schedule.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// A parameter, and a tensor of its shape: its value, or a piece of optimizer state.
struct WholeParam {
  nn::Param* param = nullptr;
  Tensor tensor;
};

/// One round of gradient accumulation: at most one micro-batch on each rank.
struct Round {
  std::int64_t index = 0;
  bool last = true;
  /// The ranks that have a micro-batch in this round, ascending; empty: all.
  std::span<const int> contributors = {};
};

/// Gives a model's parameters their memory, and each pass what it needs of it. This is the store of
/// a single rank: everything is whole and always there. Others derive from it: they share values
/// or gradients between ranks, gather before a stage runs and reduce after it.
class ParamStore {
 public:
  /// `training`: are there gradients? The model must outlive the store.
  ParamStore(nn::Model& model, bool training, const LayoutOptions& layout = {});
  virtual ~ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  virtual void request(MemoryPlan& plan, const Schedule& schedule);
  /// For a store that has everything all the time, as this one.
  void request(MemoryPlan& plan) { request(plan, {}); }
  /// Points every Param into the arena and fills the constants.
  virtual void bind(const Arena& arena);

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

  /// A step has rounds of begin_round, passes, end_round; then finish_gradients, an update,
  /// publish. All ranks make the same calls, whether they have a micro-batch in a round or not.
  virtual void begin_round(Run& run, const Round& round);
  /// Before and after a pass of a stage. Between them its Params' values are there and, backward,
  /// their gradients, to be added to. `idle`: this rank has no micro-batch in the round.
  virtual void acquire(Run& /*run*/, const StagePass& /*pass*/, bool /*idle*/) {}
  virtual void release(Run& /*run*/, const StagePass& /*pass*/, bool /*idle*/) {}
  /// Returns when grads() holds the sum over all rounds and ranks.
  virtual void finish_gradients(Run& /*run*/) {}
  /// The Euclidean norm of the whole gradient: the same bits however it is shared. Infinite or NaN
  /// when an element is.
  virtual double grad_norm(Run& run);
  /// After values() were updated: gives the others what is new.
  virtual void publish(Run& /*run*/) {}
  /// Returns when values() is what all ranks have published.
  virtual void settle() {}
  /// Ends what begin_round to publish left under way when a step fails.
  virtual void abandon() noexcept {}

  /// Calls `fill` with parameters to be given a value, all of them or some at a time, and memory
  /// for it: a whole tensor each. Each rank keeps what is its own.
  virtual void write_whole(const std::function<void(std::span<const WholeParam>)>& fill);
  /// Calls `read` with whole values, all parameters or some at a time. Every rank must call it.
  virtual void read_whole(const std::function<void(std::span<const WholeParam>)>& read);

 protected:
  /// Memory for what is frozen, and for constants; used by request() and bind().
  void request_fixed(MemoryPlan& plan);
  void bind_fixed(const Arena& arena);
  /// A view of params()[i] in a flat vector that begins with element `begin`.
  Tensor view(const Tensor& flat, std::int64_t begin, std::size_t i) const;
  /// The sums of squares of `blocks` of grads(), in order.
  std::vector<double> block_sums(Run& run, std::span<const NormBlock> blocks) const;
  bool training() const { return training_; }
  void set_vectors(Tensor values, Tensor grads) { values_ = values, grads_ = grads; }
  void set_ranges(std::vector<optim::ParamRange> ranges) { ranges_ = std::move(ranges); }

 private:
  FlatLayout layout_;
  bool training_;
  std::vector<optim::ParamRange> ranges_;
  int values_request_ = -1;
  int frozen_request_ = -1;
  int grads_request_ = -1;
  std::vector<int> constant_requests_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
