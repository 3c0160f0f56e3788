#include "atoll/comm/collectives/ordered_reduce.cuh"
#include "atoll/comm/nccl/kernels.h"

namespace atl::comm {

const void* const kOrderedReduceKernels[5] = {
    reinterpret_cast<const void*>(&cuda::run_kernel<OrderedReduce<float>>),
    reinterpret_cast<const void*>(&cuda::run_kernel<OrderedReduce<double>>),
    reinterpret_cast<const void*>(&cuda::run_kernel<OrderedReduce<Bf16>>),
    reinterpret_cast<const void*>(&cuda::run_kernel<OrderedReduce<std::int32_t>>),
    reinterpret_cast<const void*>(&cuda::run_kernel<OrderedReduce<std::int64_t>>),
};

}  // namespace atl::comm
