#include "atoll/nn/expert_load.h"

#include <algorithm>

#include "atoll/tensor/host_access.h"

namespace atl::nn {

Tensor ExpertLoad::on(Device& device) {
  if (device.kind() == DeviceKind::kCpu) return on_host();
  if (on_gpu_.device() != &device) on_gpu_ = Buffer(device, spec().bytes());
  return tensor_in(on_gpu_, spec());
}

void ExpertLoad::collect() {
  if (on_gpu_.device() == nullptr) return;
  update_on_host<double>(tensor_in(on_gpu_, spec()), [&](std::span<double> there) {
    std::transform(there.begin(), there.end(), sums.begin(), sums.begin(), std::plus<>());
    std::fill(there.begin(), there.end(), 0.0);
  });
}

void ExpertLoad::clear() {
  collect();
  std::fill(sums.begin(), sums.end(), 0.0);
}

}  // namespace atl::nn
