#pragma once

// From what a program's user says to a Device.

#include <cstdint>
#include <memory>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/device/device.h"
#include "atoll/device/device_lost.h"

namespace atl {

/// What a user asks for.
enum class DeviceChoice {
  kCpu,
  kCuda,
  kAuto,      ///< GPU `index` where there is one that can be used, else the CPU
  kFakeCuda,  ///< a GPU that the host plays, for tests: device/fake_cuda
};
/// Throws Error(kUser) for another name than "cpu", "cuda", "auto", "fake_cuda".
DeviceChoice device_choice_named(std::string_view name);

/// How the GPU that the host plays behaves.
struct FakeGpu {
  std::uint64_t order = 0;  ///< in which streams, blocks and threads run, of those a GPU may choose
  std::size_t memory = std::size_t{8} << 30;
  std::int64_t lost_after = 0;  ///< kernels that run before it is lost; 0: never
};

/// A choice with all that it needs.
struct ChosenDevice {
  DeviceChoice choice = DeviceChoice::kCpu;
  int index = 0;             ///< of several GPUs
  std::int64_t threads = 0;  ///< of the host; 0: as many as available_cpus()
  FakeGpu fake;              ///< of kFakeCuda
};

/// The chosen device. Throws Error(kUser) when it cannot be had.
std::unique_ptr<Device> open_chosen(const ChosenDevice& chosen);

/// open_cuda with `num_threads` threads for what the host does between steps.
std::unique_ptr<Device> open_cuda(int index, int num_threads);

}  // namespace atl
