#include "atoll/device/device.h"
#include "atoll/base/error.h"

namespace atl {

GpuReport probe_gpus() {
  return {false, {}, "this atoll was built without CUDA"};
}

std::unique_ptr<Device> open_cuda(int index) {
  throw user_error("device cuda:{} cannot be used: {}", index, probe_gpus().problem);
}

}  // namespace atl
