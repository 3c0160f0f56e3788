#include "atoll/ops/update/cuda_muon.h"

#include "atoll/ops/elementwise/kernels.cuh"
#include "atoll/ops/update/cuda_views.h"
#include "atoll/ops/update/muon_kernels.cuh"

namespace atl::ops::cuda {

namespace {

Spec partials_spec(const Spec& x) {
  return {Dtype::kF64, {num_blocks(x.shape.num_elements(), SquarePartials::kElements)}};
}
Spec factor_spec() {
  return {Dtype::kF32, {1}};
}

template <typename Kernel>
void launch_flat(Run& run, std::int64_t size, const Kernel& kernel) {
  if (size > 0) launch<MuonKernels>(run, thread_a_pack(size, 1, Kernel::kMaxThreads), kernel);
}

}  // namespace

Declined muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m,
                       Tensor direction) {
  if (m.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    launch_flat(run, m.num_elements(),
                MuonMomentumStep{input<float>(grad), output<float>(m), output<float>(direction),
                                 static_cast<float>(numbers.momentum),
                                 static_cast<float>(1 - numbers.momentum),
                                 static_cast<float>(numbers.grad_scale), numbers.nesterov});
  });
}

Declined muon_normalize(Run& run, double least, Tensor x) {
  if (x.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    if (x.num_elements() == 0) return;
    Run inner = run;
    const Tensor partials = inner.take_scratch(partials_spec(x.spec()));
    const Tensor factor = inner.take_scratch(factor_spec());
    launch<ElementwiseKernels>(run,
                               {.blocks_x = static_cast<std::uint32_t>(partials.num_elements()),
                                .threads = SquarePartials::kMaxThreads,
                                .shared_bytes = SquarePartials::kMaxThreads / 32 * sizeof(double)},
                               SquarePartials{input<float>(x), output<double>(partials), {}});
    launch<MuonKernels>(run, {.threads = MuonFactor::kMaxThreads},
                        MuonFactor{input<double>(partials), output<float>(factor), least});
    launch_flat(run, x.num_elements(), MuonScale{input<float>(factor), output<float>(x)});
  });
}

std::size_t muon_normalize_scratch_bytes(const Spec& x) {
  return align_up(partials_spec(x).bytes()) + align_up(factor_spec().bytes());
}

Declined muon_polynomial(Run& run, double a, double b, double c, Tensor gram, Tensor square) {
  if (square.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    launch_flat(
        run, square.num_elements(),
        MuonPolynomial{input<float>(gram), output<float>(square), square.dim(0),
                       static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)});
  });
}

Declined apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                         Tensor direction) {
  return serve_update(run, target, [&]<typename T, bool kMasters>(Target<T, kMasters> view) {
    launch_flat(
        run, target.size(),
        ApplyDirection<T, kMasters>{view, input<float>(direction), static_cast<float>(step_size),
                                    static_cast<float>(decay)});
  });
}

}  // namespace atl::ops::cuda
