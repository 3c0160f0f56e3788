#include "atoll/ops/update/cuda.h"

#include <cmath>

#include "atoll/ops/update/cuda_views.h"

namespace atl::ops::cuda {

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
