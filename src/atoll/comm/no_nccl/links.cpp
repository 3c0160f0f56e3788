#include "atoll/comm/nccl/links.h"
#include "atoll/base/error.h"
#include "atoll/comm/collectives/ordered_reduce.h"

namespace atl::comm {

bool has_nccl() {
  return false;
}

std::string nccl_version() {
  return "";
}

MakeGpuLinks nccl_links(Device& /*device*/, double /*timeout_s*/, GpuSums /*sums*/) {
  throw user_error(
      "comm.gpu = nccl cannot be used: this atoll was built without NCCL; install the package "
      "libnccl-dev and build the preset cuda again, or use --comm.gpu=host");
}

const void* ordered_reduce_kernel(Dtype /*dtype*/) {
  return nullptr;
}

}  // namespace atl::comm
