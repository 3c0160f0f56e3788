#include "atoll/ops/attention/sdpa.h"

namespace atl::ops::cuda {

Declined attend(Run& /*run*/, const SdpaCall& /*call*/, const SdpaAddresses& /*addresses*/,
                void* /*workspace*/, std::size_t /*workspace_bytes*/) {
  return "built without cuDNN";
}

}  // namespace atl::ops::cuda
