#include "atoll/ops/routing/cuda_expert_rows.h"

#include <limits>
#include <numeric>

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/routing/expert_rows_kernels.cuh"

namespace atl::ops::cuda {

namespace {

Spec totals_spec(std::int64_t num_experts) {
  return {Dtype::kI32, {num_experts}};
}

}  // namespace

Spec choice_counts_spec(std::int64_t choices, std::int64_t num_experts) {
  return {Dtype::kI32, {num_blocks(choices, ChoicePart::kChoices), num_experts}};
}

void count_parts(Run& run, Tensor experts, Tensor counts) {
  launch<ExpertRowsKernels>(run,
                            {.blocks_x = static_cast<std::uint32_t>(counts.dim(0)),
                             .threads = CountChoices::kMaxThreads,
                             .shared_bytes = CountChoices::shared_bytes()},
                            CountChoices{input<std::int32_t>(experts), output<std::int32_t>(counts),
                                         static_cast<int>(counts.dim(1))});
}

Declined assign_rows(Run& run, Tensor experts, std::int64_t capacity, Tensor places, Tensor sources,
                     Tensor offsets) {
  return serve_gpu(run, [&] {
    const std::int64_t choices = experts.num_elements();
    const auto num_experts = static_cast<int>(offsets.num_elements() - 1);
    if (choices == 0) return run.stream->fill_zero(offsets.raw(), offsets.bytes());
    Run inner = run;
    const Tensor counts = inner.take_scratch(choice_counts_spec(choices, num_experts));
    const Tensor totals = inner.take_scratch(totals_spec(num_experts));
    count_parts(run, experts, counts);
    launch<ExpertRowsKernels>(run, warp_a_row(num_experts, ScanCounts::kMaxThreads),
                              ScanCounts{output<std::int32_t>(counts), output<std::int32_t>(totals),
                                         static_cast<int>(counts.dim(0)), num_experts});
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    launch<ExpertRowsKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(counts.dim(0)),
         .threads = PlaceRows::kMaxThreads,
         .shared_bytes = static_cast<std::uint32_t>(PlaceRows::shared_bytes(num_experts))},
        PlaceRows{input<std::int32_t>(experts), input<std::int32_t>(counts),
                  input<std::int32_t>(totals), output<std::int32_t>(places),
                  output<std::int32_t>(sources), output<std::int32_t>(offsets), num_experts,
                  static_cast<std::int32_t>(std::min(capacity, most))});
  });
}

std::size_t assign_rows_scratch_bytes(std::int64_t choices, std::int64_t num_experts) {
  return align_up(choice_counts_spec(choices, num_experts).bytes()) +
         align_up(totals_spec(num_experts).bytes());
}

Declined gather_rows(Run& run, Tensor x, Tensor sources, Tensor rows) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    const std::int64_t width = x.dim(1);
    if (rows.num_elements() == 0) return;
    with_pack<kPack<T>>(width, {x, rows}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = GatherRows<T, V>;
      launch<ExpertRowsKernels>(run, warp_a_row(rows.dim(0), Kernel::kMaxThreads),
                                Kernel{input<T>(x), input<std::int32_t>(sources), output<T>(rows),
                                       width, static_cast<std::int32_t>(rows.dim(0) / x.dim(0))});
    });
  });
}

Declined combine_rows(Run& run, Tensor rows, Tensor places, Tensor weights, Tensor y) {
  return serve_gpu_storage(run, rows.dtype(), [&]<typename T>(T) {
    const std::int64_t width = y.dim(1);
    if (y.num_elements() == 0) return;
    with_pack<kPack<T>>(width, {rows, y}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = CombineRows<T, V>;
      launch<ExpertRowsKernels>(run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
                                Kernel{input<T>(rows), input<std::int32_t>(places),
                                       input<float>(weights), output<T>(y), width, places.dim(1)});
    });
  });
}

Declined weigh_rows(Run& run, Tensor weights, Tensor sources, Tensor dh, Tensor h, Tensor d,
                    Tensor dweights) {
  return serve_gpu_storage(run, h.dtype(), [&]<typename T>(T) {
    run.stream->fill_zero(dweights.raw(), dweights.bytes());
    if (sources.num_elements() == 0) return;
    const std::int64_t inner = h.dim(1), outer = d.dim(1);
    // Both widths are multiples of a pack where their common divisor is.
    with_pack<kPack<T>>(
        std::gcd(inner, outer), {dh, h, d}, [&]<int V>(std::integral_constant<int, V>) {
          using Kernel = WeighRows<T, V>;
          launch<ExpertRowsKernels>(
              run, warp_a_row(sources.num_elements(), Kernel::kMaxThreads),
              Kernel{input<float>(weights), input<std::int32_t>(sources), input<T>(dh),
                     output<T>(h), output<T>(d), output<float>(dweights), inner, outer});
        });
  });
}

}  // namespace atl::ops::cuda
