#include "atoll/ops/activation/cuda.h"

#include "atoll/ops/activation/kernels.cuh"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/matmul/cpu_column_sum.h"

namespace atl::ops::cuda {

namespace {

template <typename Kernel>
void launch_packs(Run& run, std::int64_t elements, int pack, const Kernel& kernel) {
  if (elements == 0) return;
  launch<ActivationKernels>(run, thread_a_pack(elements, pack, Kernel::kMaxThreads), kernel);
}

}  // namespace

Declined swiglu_forward(Run& run, Tensor gate_up, Tensor h) {
  return serve_gpu_storage(run, h.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(h.dim(-1), {gate_up, h}, [&]<int V>(std::integral_constant<int, V>) {
      launch_packs(run, h.num_elements(), V,
                   SwigluForward<T, V>{input<T>(gate_up), output<T>(h), h.dim(-1)});
    });
  });
}

Declined swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  return serve_gpu_storage(run, dh.dtype(), [&]<typename T>(T) {
    const Tensor again = h.defined() ? h : dh;
    with_pack<kPack<T>>(
        dh.dim(-1), {gate_up, dh, dgate_up, again}, [&]<int V>(std::integral_constant<int, V>) {
          launch_packs(run, dh.num_elements(), V,
                       SwigluBackward<T, V>{input<T>(gate_up), input<T>(dh), output<T>(dgate_up),
                                            output<T>(h), dh.dim(-1)});
        });
  });
}

Declined geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h) {
  return serve_gpu_storage(run, h.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(h.dim(-1), {gate_up, h}, [&]<int V>(std::integral_constant<int, V>) {
      launch_packs(
          run, h.num_elements(), V,
          GegluForward<T, V>{input<T>(gate_up), output<T>(h), h.dim(-1), kind == Gelu::kTanh});
    });
  });
}

Declined geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  return serve_gpu_storage(run, dh.dtype(), [&]<typename T>(T) {
    const Tensor again = h.defined() ? h : dh;
    with_pack<kPack<T>>(
        dh.dim(-1), {gate_up, dh, dgate_up, again}, [&]<int V>(std::integral_constant<int, V>) {
          launch_packs(run, dh.num_elements(), V,
                       GegluBackward<T, V>{input<T>(gate_up), input<T>(dh), output<T>(dgate_up),
                                           output<T>(h), dh.dim(-1), kind == Gelu::kTanh});
        });
  });
}

Declined gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(x.num_elements(), {x, y}, [&]<int V>(std::integral_constant<int, V>) {
      launch_packs(run, x.num_elements(), V,
                   GeluForward<T, V>{input<T>(x), output<T>(y), kind == Gelu::kTanh});
    });
  });
}

namespace {

void gelu_backward_columns(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y,
                           Tensor sums) {
  const auto launch_columns = [&]<typename T, int V>(T, std::integral_constant<int, V>) {
    using Kernel = GeluBackwardColumns<T, V>;
    const std::int64_t rows = dx.shape().num_rows(), width = dx.dim(-1);
    const ColumnSumRows cut = column_sum_rows(rows);
    launch<ActivationKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(num_blocks(width, 32 * V)),
         .blocks_y = static_cast<std::uint32_t>(cut.count),
         .threads = Kernel::kMaxThreads,
         .shared_bytes = Kernel::shared_bytes()},
        Kernel{input<T>(x), input<T>(dy), output<T>(dx), output<T>(y), output<float>(sums), rows,
               width, cut.rows_per_block, kind == Gelu::kTanh});
  };
  const auto with_storage = [&]<typename T>(T storage) {
    with_pack<kPack<T>>(dx.dim(-1), {x, dy, dx, y.defined() ? y : x},
                        [&](auto pack) { launch_columns(storage, pack); });
  };
  if (dx.num_elements() == 0) return;
  x.dtype() == Dtype::kBf16 ? with_storage(Bf16{}) : with_storage(float{});
}

}  // namespace

Declined gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y, Tensor sums) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (sums.defined()) return gelu_backward_columns(run, kind, x, dy, dx, y, sums);
    with_pack<kPack<T>>(x.num_elements(), {x, dy, dx, y.defined() ? y : x},
                        [&]<int V>(std::integral_constant<int, V>) {
                          launch_packs(run, x.num_elements(), V,
                                       GeluBackward<T, V>{input<T>(x), input<T>(dy), output<T>(dx),
                                                          output<T>(y), kind == Gelu::kTanh});
                        });
  });
}

}  // namespace atl::ops::cuda
