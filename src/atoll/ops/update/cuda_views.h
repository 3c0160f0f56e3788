#pragma once

// Targets of updates as kernels see them.

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/update/kernels.cuh"
#include "atoll/ops/update/update_target.h"

namespace atl::ops::cuda {

template <typename T, bool kMasters>
Target<T, kMasters> view_of(const UpdateTarget& target) {
  const auto key = target.rounding.key(), salt = target.rounding.salt();
  return {output<T>(target.values),
          output<float>(target.master),
          target.first_element,
          {{key[0], key[1]}, {salt[0], salt[1]}}};
}

/// Calls launch_one(Target) for the kind of target at hand.
template <typename Fn>
Declined serve_update(Run& run, const UpdateTarget& target, Fn&& launch_one) {
  return serve_gpu_storage(run, target.values.dtype(), [&]<typename T>(T) {
    if (target.size() == 0) return;
    if constexpr (std::is_same_v<T, Bf16>) {
      if (target.master.defined()) return launch_one(view_of<Bf16, true>(target));
    }
    launch_one(view_of<T, false>(target));
  });
}

}  // namespace atl::ops::cuda
