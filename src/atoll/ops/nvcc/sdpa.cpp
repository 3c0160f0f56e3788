#include "atoll/ops/attention/sdpa.h"

#include "atoll/device/cuda/runtime.h"

namespace atl::ops::cuda {

Declined attend(Run& run, const SdpaCall& call, const SdpaAddresses& addresses, void* workspace,
                std::size_t workspace_bytes) {
  auto* stream = dynamic_cast<atl::cuda::CudaStream*>(run.stream);
  if (stream == nullptr) return "not a GPU's stream";
  Sdpa* library = stream->sdpa();
  if (library == nullptr) return "no cuDNN in this build, or another architecture than sm_90";
  library->attend(call, addresses, workspace, workspace_bytes);
  return kServed;
}

}  // namespace atl::ops::cuda
