#include "atoll/ops/elementwise/cuda.h"

#include <vector>

#include "atoll/ops/cuda/per_step.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/elementwise/kernels.cuh"
#include "atoll/tensor/arena.h"

namespace atl::ops::cuda {

namespace {

template <typename From, typename To>
void convert_as(Run& run, Tensor x, Tensor y) {
  constexpr int kAtOnce = 4;  // 16 bytes of f32, 8 of bf16
  with_pack<kAtOnce>(x.num_elements(), {x, y}, [&]<int V>(std::integral_constant<int, V>) {
    using Kernel = Convert<From, To, V>;
    launch<ElementwiseKernels>(run, thread_a_pack(x.num_elements(), V, Kernel::kMaxThreads),
                               Kernel{input<From>(x), output<To>(y)});
  });
}

// What RngStream's constructor makes of all but its last argument.
DropoutDraws dropout_draws(const Run& run, std::int64_t layer) {
  constexpr int kStepBits = 48;  // as dropout_stream says
  const auto a =
      static_cast<std::uint64_t>(layer) << kStepBits | static_cast<std::uint64_t>(run.step);
  const auto words =
      philox({static_cast<std::uint32_t>(RngPurpose::kDropout), 0, static_cast<std::uint32_t>(a),
              static_cast<std::uint32_t>(a >> 32)},
             {static_cast<std::uint32_t>(run.seed), static_cast<std::uint32_t>(run.seed >> 32)});
  return {
      {{words[0], words[1], words[2], words[3]}}, static_cast<std::uint64_t>(run.first_sample), 0};
}

PerStep<DropoutDraws> draws_of_step(const Run& run, std::int64_t layer) {
  return per_step(run, [layer](const Run& now) { return dropout_draws(now, layer); });
}

template <typename T>
void dropout_part(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, const RowPart& part) {
  const std::int64_t rows = part.count * x.dim(1), width = x.dim(2);
  const auto stretches = part.tokens.stretches(rows * part.tokens.num_ranks);
  with_pack<4>(width, {x, y}, [&]<int V>(std::integral_constant<int, V>) {
    using Kernel = DropoutPart<T, V>;
    launch<ElementwiseKernels>(
        run, thread_a_pack(x.num_elements(), V, Kernel::kMaxThreads),
        Kernel{input<T>(x), output<T>(y), part.index * x.num_elements(), width, rows,
               rows / part.tokens.num_stretches(), stretches[0].first, stretches[1].first,
               draws_of_step(run, layer), static_cast<float>(p), static_cast<float>(1 / (1 - p))});
  });
}

}  // namespace

Declined add(Run& run, Tensor a, Tensor b, Tensor y) {
  return serve_gpu_storage(run, y.dtype(), [&]<typename T>(T) {
    if (y.num_elements() == 0) return;
    with_pack<kPack<T>>(b.num_elements(), {a, b, y}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = Add<T, V>;
      launch<ElementwiseKernels>(run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
                                 Kernel{input<T>(a), input<T>(b), output<T>(y)});
    });
  });
}

Declined scale(Run& run, double factor, Tensor x, Tensor y) {
  return serve_gpu_storage(run, y.dtype(), [&]<typename T>(T) {
    if (y.num_elements() == 0) return;
    with_pack<kPack<T>>(y.num_elements(), {x, y}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = Scale<T, V>;
      launch<ElementwiseKernels>(run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
                                 Kernel{input<T>(x), output<T>(y), static_cast<float>(factor)});
    });
  });
}

Declined copy(Run& run, Tensor x, Tensor y) {
  return serve_gpu(run, [&] { run.stream->copy(y.raw(), x.raw(), x.bytes()); });
}

Declined convert(Run& run, Tensor x, Tensor y) {
  return serve_gpu(run, [&] {
    if (x.num_elements() == 0) return;
    x.dtype() == Dtype::kF32 ? convert_as<float, Bf16>(run, x, y)
                             : convert_as<Bf16, float>(run, x, y);
  });
}

Declined fill_zero(Run& run, Tensor x) {
  return serve_gpu(run, [&] { run.stream->fill_zero(x.raw(), x.bytes()); });
}

Declined dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, const RowPart& part) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    using Kernel = Dropout<T>;
    if (x.num_elements() == 0) return;
    if (part.count > 1 || part.tokens.num_ranks > 1) {
      return dropout_part<T>(run, p, layer, x, y, part);
    }
    const std::int64_t size = x.dim(1) * x.dim(2);
    LaunchShape shape = thread_a_pack(size, 4, Kernel::kMaxThreads);
    shape.blocks_y = static_cast<std::uint32_t>(x.dim(0));
    launch<ElementwiseKernels>(run, shape,
                               Kernel{input<T>(x), output<T>(y), size, draws_of_step(run, layer),
                                      static_cast<float>(p), static_cast<float>(1 / (1 - p))});
  });
}

Declined sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks,
                         std::span<double> sums) {
  if (x.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    constexpr std::int64_t kElements = SquarePartials::kElements;
    std::int64_t count = 0;  // of stretches, of which a block has one or more
    for (const Block& block : blocks) count += num_blocks(block.count, kElements);
    std::fill(sums.begin(), sums.end(), 0.0);
    if (count == 0) return;
    // One launch for all: there are as many blocks as parameters, or many more. Stretches lie
    // behind the partial sums, on the host as on the GPU.
    const auto num = static_cast<std::size_t>(count);
    const std::size_t at = align_up(num * sizeof(double));
    const auto room = dynamic_cast<atl::cuda::KernelStream&>(*run.stream)
                          .room(run.stream->device(), at + 2 * num * sizeof(std::int64_t));
    auto* const host = static_cast<std::byte*>(room.host);
    auto* const device = static_cast<std::byte*>(room.device);
    auto* stretch = reinterpret_cast<std::int64_t*>(host + at);
    for (const Block& block : blocks) {
      for (std::int64_t done = 0; done < block.count; done += kElements) {
        *stretch++ = block.begin + done;
        *stretch++ = std::min(kElements, block.count - done);
      }
    }
    run.stream->copy(device + at, host + at, 2 * num * sizeof(std::int64_t));
    launch<ElementwiseKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(count),
         .threads = SquarePartials::kMaxThreads,
         .shared_bytes = SquarePartials::kMaxThreads / 32 * sizeof(double)},
        SquarePartials{input<float>(x),
                       {reinterpret_cast<double*>(device), count},
                       {reinterpret_cast<const std::int64_t*>(device + at), 2 * count}});
    run.stream->copy(host, device, num * sizeof(double));
    run.stream->synchronize();
    const auto* value = reinterpret_cast<const double*>(host);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (std::int64_t k = num_blocks(blocks[i].count, kElements); k > 0; --k) sums[i] += *value++;
    }
  });
}

Declined sum_of_squares(Run& run, Tensor x, double* sum) {
  const Block all = {0, x.num_elements()};
  return sums_of_squares(run, x, {&all, 1}, {sum, 1});
}

}  // namespace atl::ops::cuda
