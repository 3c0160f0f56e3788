#pragma once

// Whether this build can play a GPU on the host. It takes each kernel compiled for the host too, a
// fifteenth of a build, and only tests play a GPU: without them CMake leaves it out.

namespace atl::fake_cuda {

#ifdef ATOLL_WITHOUT_FAKE_CUDA
inline constexpr bool kIsBuilt = false;
#else
inline constexpr bool kIsBuilt = true;
#endif

/// One thread of a kernel on the host, for cuda::KernelCode::shim; null where kIsBuilt is false.
template <typename Kernel>
constexpr auto shim_of() -> void (*)(const void* operands) {
  if constexpr (kIsBuilt) {
    return [](const void* operands) { (*static_cast<const Kernel*>(operands))(); };
  } else {
    return nullptr;
  }
}

}  // namespace atl::fake_cuda
