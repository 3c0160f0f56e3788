#pragma once

#include "atoll/ops/cuda/per_step.cuh"
#include "atoll/ops/step_record.h"

namespace atl::ops::cuda {

/// What make(run) gives: see StepRecord::add for what `make` may use of the run.
template <typename Make>
auto per_step(const Run& run, Make make) {
  using T = decltype(make(run));
  if (run.record == nullptr) return PerStep<T>{.value = make(run), .recorded = {}};
  return PerStep<T>{.value = {}, .recorded = {run.record->add(make), 1}};
}

}  // namespace atl::ops::cuda
