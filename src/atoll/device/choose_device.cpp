#include "atoll/device/choose_device.h"

#include <string>
#include <vector>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/device/fake_cuda/shim.h"
#include "atoll/device/gpu_support.h"

namespace atl {

std::string why_no_gpu(int index) {
  const std::vector<std::string> problems = gpu_problems();
  if (problems.empty()) return probe_gpus().problem;
  const auto at = static_cast<std::size_t>(index);
  if (at < problems.size()) return problems[at];
  return fmt::format("the driver counts {} here, from cuda:0 on, and cuda:{} is none of them",
                     problems.size() == 1 ? "1 GPU" : fmt::format("{} GPUs", problems.size()),
                     index);
}

DeviceChoice device_choice_named(std::string_view name) {
  if (name == "cpu") return DeviceChoice::kCpu;
  if (name == "cuda") return DeviceChoice::kCuda;
  if (name == "auto") return DeviceChoice::kAuto;
  if (name == "fake_cuda") return DeviceChoice::kFakeCuda;
  throw user_error("there is no device {}; there are cpu, cuda, auto and fake_cuda", name);
}

std::unique_ptr<Device> open_chosen(const ChosenDevice& chosen) {
  const int threads = chosen.threads == 0 ? available_cpus() : static_cast<int>(chosen.threads);
  switch (chosen.choice) {
    case DeviceChoice::kCuda:
      return open_cuda(chosen.index, threads);
    case DeviceChoice::kFakeCuda:
      if (!fake_cuda::kIsBuilt) {
        throw user_error(
            "device.kind = fake_cuda plays a GPU on the CPU, for tests, and this build leaves it "
            "out; build atoll with -DATOLL_TESTS=ON");
      }
      return std::make_unique<fake_cuda::FakeCudaDevice>(
          fake_cuda::Options{.seed = chosen.fake.order,
                             .threads = threads,
                             .total_memory = chosen.fake.memory,
                             .lost_after = chosen.fake.lost_after});
    case DeviceChoice::kAuto:
      if (why_no_gpu(chosen.index).empty()) return open_cuda(chosen.index, threads);
      break;
    case DeviceChoice::kCpu:
      break;
  }
  return open_cpu(threads);
}

}  // namespace atl
