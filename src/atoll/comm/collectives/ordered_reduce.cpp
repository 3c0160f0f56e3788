#include "atoll/comm/collectives/ordered_reduce.h"

#include "atoll/comm/collectives/ordered_reduce.cuh"
#include "atoll/device/cuda/launch.h"
#include "atoll/device/fake_cuda/shim.h"

namespace atl::comm {

namespace {

template <typename T>
void launch(Stream& stream, Reduce reduce, const Tensor& parts, const Tensor& result,
            bool accumulate) {
  using Kernel = OrderedReduce<T>;
  const Kernel kernel = {.parts = {parts.data<T>(), parts.num_elements()},
                         .result = {result.data<T>(), result.num_elements()},
                         .num_parts = parts.dim(0),
                         .reduce = static_cast<std::int32_t>(reduce),
                         .accumulate = accumulate ? 1 : 0};
  const cuda::KernelCode code = {.name = Kernel::kName,
                                 .gpu = ordered_reduce_kernel(result.dtype()),
                                 .shim = fake_cuda::shim_of<Kernel>()};
  constexpr std::int64_t kThreads = Kernel::kMaxThreads;
  const std::int64_t blocks = (result.num_elements() + kThreads - 1) / kThreads;
  dynamic_cast<cuda::KernelStream&>(stream).launch(
      code, {.blocks_x = static_cast<std::uint32_t>(blocks), .threads = kThreads}, &kernel,
      sizeof kernel);
}

}  // namespace

void queue_ordered_reduce(Stream& stream, Reduce reduce, const Tensor& parts, const Tensor& result,
                          bool accumulate) {
  if (result.num_elements() == 0) return;
  switch (result.dtype()) {
    case Dtype::kF32:
      return launch<float>(stream, reduce, parts, result, accumulate);
    case Dtype::kF64:
      return launch<double>(stream, reduce, parts, result, accumulate);
    case Dtype::kBf16:
      return launch<Bf16>(stream, reduce, parts, result, accumulate);
    case Dtype::kI32:
      return launch<std::int32_t>(stream, reduce, parts, result, accumulate);
    case Dtype::kI64:
      return launch<std::int64_t>(stream, reduce, parts, result, accumulate);
    default:
      ATOLL_CHECK(false, "{} has no reductions", dtype_name(result.dtype()));
  }
}

}  // namespace atl::comm
