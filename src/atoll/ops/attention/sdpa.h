#pragma once

#include "atoll/base/threads/thread_pool.h"
#include "atoll/device/sdpa.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

/// Queues a call of cuDNN on a real GPU's stream. Declines in a build without it, and on a GPU that
/// it is not used on.
Declined attend(Run& run, const SdpaCall& call, const SdpaAddresses& addresses, void* workspace,
                std::size_t workspace_bytes);

/// What cuDNN does, on the host: reads and writes operands by the dims and strides of
/// sdpa_tensors(), and computes with ref. Leaves all of the planned workspace overwritten.
void play_attend(ThreadPool& threads, const SdpaCall& call, const SdpaAddresses& addresses,
                 void* workspace);

}  // namespace atl::ops::cuda
