#pragma once

#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// The store of a single rank: all values and gradients have permanent memory.
class SingleStore final : public ParamStore {
 public:
  SingleStore(nn::Model& model, bool training) : ParamStore(model, training) {}

  void request(MemoryPlan& plan, const Schedule& schedule) override;
  /// The same without a schedule, on which this store does not depend.
  void request(MemoryPlan& plan) { request(plan, {}); }
  void bind(const Arena& arena) override;
  void acquire(Run& run, const StagePass& pass, bool idle) override;
  void release(Run& /*run*/, const StagePass& /*pass*/, bool /*idle*/) override {}
  void reduce(Run& run) override;
  void publish(Run& /*run*/) override {}
  void settle() override {}

 private:
  int values_request_ = -1;
  int grads_request_ = -1;
};

}  // namespace atl::parallel
