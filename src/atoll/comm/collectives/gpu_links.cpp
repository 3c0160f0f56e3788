#include "atoll/comm/collectives/gpu_links.h"

#include "atoll/base/check.h"

namespace atl::comm {

void GpuLinks::all_reduce(std::span<const int> /*members*/, const Tensor& /*data*/) {
  ATOLL_CHECK(false, "links without sums of their own");
}

void GpuLinks::reduce_scatter(std::span<const int> /*members*/, int /*self*/,
                              const Tensor& /*data*/, std::span<const std::int64_t> /*parts*/,
                              const Tensor& /*result*/) {
  ATOLL_CHECK(false, "links without sums of their own");
}

}  // namespace atl::comm
