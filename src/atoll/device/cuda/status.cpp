#include "atoll/device/cuda/status.h"

#include <string>

#include "atoll/base/error.h"
#include "atoll/device/device_lost.h"
#include "atoll/device/gpu_support.h"

namespace atl::cuda {

namespace {

enum class Meaning {
  kRefused,       // one call was
  kBusy,          // another process has the GPU
  kKernelFailed,  // no later call of this process succeeds; most often the kernel is wrong
  kLost,          // the hardware or its driver does not answer
};

Meaning meaning_of(cudaError_t status) {
  switch (status) {
    case cudaErrorDevicesUnavailable:
      return Meaning::kBusy;
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
      return Meaning::kKernelFailed;
    case cudaErrorUnknown:  // also when the GPU has fallen off the bus
    case cudaErrorNoDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return Meaning::kLost;
    default:
      return Meaning::kRefused;
  }
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const std::string problem =
      fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  switch (meaning_of(status)) {
    case Meaning::kKernelFailed:
      throw DeviceLostError(failed_kernel_text(problem));
    case Meaning::kLost:
      throw DeviceLostError(lost_gpu_text(problem));
    case Meaning::kBusy:
      throw make_error(ErrorKind::kResource, "{}", busy_gpu_text(problem));
    case Meaning::kRefused:
      break;
  }
  throw make_error(ErrorKind::kResource, "CUDA: {}", problem);
}

void check_not_lost(std::string_view what) {
  // Answers at once, and with what ended the process's work on the GPU, whichever call hears it.
  const cudaError_t status = cudaStreamQuery(nullptr);
  const Meaning meaning = meaning_of(status);
  if (meaning == Meaning::kKernelFailed || meaning == Meaning::kLost) check(status, what);
}

}  // namespace atl::cuda
