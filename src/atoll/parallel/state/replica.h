#pragma once

#include <memory>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/layout/held_state.h"
#include "atoll/parallel/store/store_data_parallel.h"

namespace atl::parallel {

/// A copy of the share of the next rank, kept by this one so that the next can be lost: the moments
/// of its part of the parameters and, with ZeRO 3, the values. It is updated here with the
/// gradients that the other rank has reduced, so that both stay the same bit for bit; a step sends
/// each rank's reduced gradients once.
class Replica {
 public:
  /// Of a store with these options: zero > 0, several ranks and one copy. It must outlive this.
  Replica(ParamStore& store, const DataParallelOptions& shared,
          const optim::OptimizerOptions& optimizer);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Copies the next rank's values and moments. Every rank must call it: when training begins.
  void synchronise(comm::Group& group, const optim::Optimizer& own);
  /// After reduce(), before the update. Every rank must call it.
  void receive_gradients(comm::Group& group);
  /// What the next rank's optimizer does with its part.
  void update(Run& run, const optim::StepArgs& args);

  /// Which rank of the shard group this is a copy of.
  int of() const { return of_; }
  HeldVectors held() const;
  std::size_t scratch_bytes() const { return optimizer_->scratch_bytes(); }

 private:
  Tensor values() const;

  ParamStore& store_;
  int of_;
  bool has_values_;  // ZeRO 3; otherwise they are the store's
  std::vector<optim::ParamRange> ranges_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  int values_request_ = -1, grads_request_ = -1;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
