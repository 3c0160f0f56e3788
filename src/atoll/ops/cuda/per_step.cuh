#pragma once

#include "atoll/device/cuda/kernel.h"

namespace atl::ops::cuda {

/// An operand that differs from step to step: as it was when the kernel was queued, or, in a graph,
/// from the device's record of the step (ops/step_record.h).
template <typename T>
struct PerStep {
  T value{};
  atl::cuda::Global<const T> recorded;  // one element, or none

  ATOLL_DEVICE T get() const { return recorded.size == 0 ? value : recorded.load(0); }
};

}  // namespace atl::ops::cuda
