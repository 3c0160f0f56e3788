#include "atoll/device/device.h"

#include "atoll/base/error.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/gpu_support.h"

namespace atl {

GpuReport probe_gpus() {
  return {false,
          {},
          "this atoll was built without CUDA; build it with the preset cuda (./dev build cuda), or "
          "use --device.kind=cpu"};
}

std::vector<std::string> gpu_problems() {
  return {};
}

std::vector<std::int64_t> gpu_identities() {
  return {};
}

std::pair<int, int> compute_capability() {
  return {0, 0};
}

std::unique_ptr<Device> open_cuda(int index) {
  throw user_error("device cuda:{} cannot be used: {}", index, probe_gpus().problem);
}

std::unique_ptr<Device> open_cuda(int index, int /*num_threads*/) {
  return open_cuda(index);
}

}  // namespace atl
