#include "atoll/device/gpu_support.h"

#include <fmt/format.h>

namespace atl {

namespace {

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

std::string driver_problem(const DriverFacts& facts) {
  if (facts.driver == 0) {
    return "no NVIDIA driver is loaded; install NVIDIA's driver, and in a container give it the "
           "GPUs (docker run --gpus all)";
  }
  // A driver serves every runtime of its own major version.
  if (facts.driver / 1000 < facts.runtime / 1000) {
    return fmt::format(
        "the NVIDIA driver is too old: it serves CUDA {}, and this atoll was built with CUDA {}; "
        "install a newer driver, or build atoll with CUDA {}",
        version(facts.driver), version(facts.runtime), facts.driver / 1000);
  }
  if (!facts.status.empty()) {
    return fmt::format(
        "the CUDA runtime says: {} (the driver serves CUDA {}); see what nvidia-smi "
        "says",
        facts.status, version(facts.driver));
  }
  if (facts.num_gpus == 0) {
    return "the NVIDIA driver sees no GPU; see what nvidia-smi says, and whether "
           "CUDA_VISIBLE_DEVICES hides it";
  }
  return "";
}

std::string gpu_problem(std::string_view name, int major, int minor) {
  if (10 * major + minor >= kLeastComputeCapability) return "";
  return fmt::format(
      "{} has compute capability {}.{}, and atoll's kernels need {}.{} (Ampere) or newer; use a "
      "newer GPU, or --device.kind=cpu",
      name, major, minor, kLeastComputeCapability / 10, kLeastComputeCapability % 10);
}

std::string fp8_problem(int major, int minor, bool in_blocks) {
  const int capability = 10 * major + minor;
  if (in_blocks ? capability == 90 : capability >= 89) return "";
  return fmt::format(
      "the GPU has compute capability {}.{}, and {}; {}", major, minor,
      in_blocks ? "numbers of 8 bits are scaled in blocks on 9.0 alone (H100, H200)"
                : "numbers of 8 bits are multiplied from 8.9 on (RTX 40, L40S, H100)",
      in_blocks && capability >= 89 ? "use --train.fp8=tensor" : "use --train.fp8=off");
}

std::string lost_gpu_text(std::string_view problem) {
  return fmt::format(
      "the GPU is lost: {}; nvidia-smi and the system's log (Xid) say more, and "
      "CUDA_VISIBLE_DEVICES leaves a GPU out",
      problem);
}

std::string failed_kernel_text(std::string_view problem) {
  return fmt::format(
      "a kernel failed, and the GPU takes no more work from this process: {}; this is most likely "
      "a mistake in atoll, please report it",
      problem);
}

std::string busy_gpu_text(std::string_view problem) {
  return fmt::format(
      "the GPU is busy: another process has it to itself: {}; nvidia-smi names the process and the "
      "compute mode",
      problem);
}

}  // namespace atl
