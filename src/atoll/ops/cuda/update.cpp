#include "atoll/ops/cuda/update.h"

#include <cmath>

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/cuda/update.cuh"

namespace atl::ops::cuda {

namespace {

template <typename T, bool kMasters>
Target<T, kMasters> view_of(const UpdateTarget& target) {
  const auto key = target.rounding.key(), salt = target.rounding.salt();
  return {output<T>(target.values),
          output<float>(target.master),
          target.first_element,
          {{key[0], key[1]}, {salt[0], salt[1]}}};
}

// Calls launch_one(Target) for the kind of target at hand.
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

}  // namespace

Declined adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
               Tensor v) {
  const auto exponent = static_cast<double>(step.step);
  return serve_update(run, target, [&]<typename T, bool kMasters>(Target<T, kMasters> view) {
    using Kernel = AdamW<T, kMasters>;
    launch<UpdateKernels>(
        run, thread_a_pack(target.size(), 1, Kernel::kMaxThreads),
        Kernel{.target = view,
               .grad = input<float>(grad),
               .m = output<float>(m),
               .v = output<float>(v),
               .lr = static_cast<float>(step.lr),
               .beta1 = static_cast<float>(step.beta1),
               .beta2 = static_cast<float>(step.beta2),
               .rest1 = static_cast<float>(1 - step.beta1),
               .rest2 = static_cast<float>(1 - step.beta2),
               .correction1 = static_cast<float>(1 - std::pow(step.beta1, exponent)),
               .correction2 = static_cast<float>(1 - std::pow(step.beta2, exponent)),
               .eps = static_cast<float>(step.eps),
               .weight_decay = static_cast<float>(step.weight_decay),
               .grad_scale = static_cast<float>(step.grad_scale)});
  });
}

Declined lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  return serve_update(run, target, [&]<typename T, bool kMasters>(Target<T, kMasters> view) {
    using Kernel = Lion<T, kMasters>;
    launch<UpdateKernels>(run, thread_a_pack(target.size(), 1, Kernel::kMaxThreads),
                          Kernel{.target = view,
                                 .grad = input<float>(grad),
                                 .m = output<float>(m),
                                 .lr = static_cast<float>(step.lr),
                                 .beta1 = static_cast<float>(step.beta1),
                                 .beta2 = static_cast<float>(step.beta2),
                                 .rest1 = static_cast<float>(1 - step.beta1),
                                 .rest2 = static_cast<float>(1 - step.beta2),
                                 .weight_decay = static_cast<float>(step.weight_decay),
                                 .grad_scale = static_cast<float>(step.grad_scale)});
  });
}

Declined sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  return serve_update(run, target, [&]<typename T, bool kMasters>(Target<T, kMasters> view) {
    using Kernel = Sgd<T, kMasters>;
    launch<UpdateKernels>(run, thread_a_pack(target.size(), 1, Kernel::kMaxThreads),
                          Kernel{.target = view,
                                 .grad = input<float>(grad),
                                 .m = output<float>(m),
                                 .lr = static_cast<float>(step.lr),
                                 .momentum = static_cast<float>(step.momentum),
                                 .weight_decay = static_cast<float>(step.weight_decay),
                                 .grad_scale = static_cast<float>(step.grad_scale),
                                 .nesterov = step.nesterov});
  });
}

}  // namespace atl::ops::cuda
