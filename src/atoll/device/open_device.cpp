#include "atoll/device/device.h"

namespace atl {

std::unique_ptr<Device> open_device(const DeviceOptions& options) {
  if (options.kind == DeviceKind::kCuda) return open_cuda(options.index);
  return open_cpu(static_cast<int>(options.threads));
}

}  // namespace atl
