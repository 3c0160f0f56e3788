#pragma once

#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// The store of a rank that shares nothing: everything is whole and always there.
class SingleStore final : public ParamStore {
 public:
  SingleStore(nn::Model& model, bool training) : ParamStore(model, training) {}

  void request(MemoryPlan& plan, const Schedule& schedule) override;
  /// The same: nothing here comes and goes with stages.
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
