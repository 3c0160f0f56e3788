#pragma once

#include "atoll/comm/collective.h"
#include "atoll/device/device.h"

namespace atl::comm {

/// Queues on a GPU's stream what reduce_in_order does on the host, with the same bits. `parts`
/// (num_parts, count) are of one dtype with `result` (count), which begins the reduction where
/// `accumulate` is set. Throws Error(kInternal) for a dtype without reductions.
void queue_ordered_reduce(Stream& stream, Reduce reduce, const Tensor& parts, const Tensor& result,
                          bool accumulate);

/// The kernel that nvcc compiled for this dtype; null in a build without NCCL.
const void* ordered_reduce_kernel(Dtype dtype);

}  // namespace atl::comm
