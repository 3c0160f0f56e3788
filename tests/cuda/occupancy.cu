// How many blocks of each kernel a multiprocessor holds at once: from what ptxas says of registers,
// and the kernel's own threads and shared memory. kernels.py feeds it; no GPU is needed.
//
// Reads lines "registers on sm_80, on sm_90, on sm_100, name", writes "blocks on each, name".

#include <cuda_occupancy.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <typeinfo>

#include "atoll/ops/nvcc/all_kernels.h"

namespace {

using namespace atl::ops::cuda;

struct Shape {
  int threads = 0;
  int shared_bytes = 0;
};

template <typename Kernel>
int shared_bytes_of() {
  if constexpr (requires { Kernel::shared_bytes(); })
    return Kernel::shared_bytes();
  else
    return 0;  // what is left is less than a KiB, and limits nothing
}

std::string name_of(const std::type_info& type) {
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  std::string name = text;
  std::free(text);
  return name;
}

template <typename List>
void add(std::map<std::string, Shape>& shapes) {
  List::for_each([&]<typename Kernel>(std::type_identity<Kernel>) {
    shapes[name_of(typeid(Kernel))] = {Kernel::kMaxThreads, shared_bytes_of<Kernel>()};
  });
}

// The limits of the CUDA programming guide's table for compute capabilities 8.0, 9.0 and 10.0.
cudaOccDeviceProp limits(int major) {
  cudaOccDeviceProp limits;
  limits.computeMajor = major;
  limits.computeMinor = 0;
  limits.maxThreadsPerBlock = 1024;
  limits.maxThreadsPerMultiprocessor = 2048;
  limits.regsPerBlock = limits.regsPerMultiprocessor = 65536;
  limits.warpSize = 32;
  limits.sharedMemPerBlock = 48 << 10;
  limits.sharedMemPerMultiprocessor = (major == 8 ? 164 : 228) << 10;
  limits.sharedMemPerBlockOptin = (major == 8 ? 163 : 227) << 10;
  limits.reservedSharedMemPerBlock = 1 << 10;
  limits.numSms = 1;  // of no account here
  return limits;
}

int blocks(int major, int registers, const Shape& shape) {
  const cudaOccDeviceProp properties = limits(major);
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = shape.threads;
  function.numRegs = registers;
  function.sharedSizeBytes = 0;
  function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = properties.sharedMemPerBlockOptin;
  const cudaOccDeviceState state;
  cudaOccResult result;
  const auto status = cudaOccMaxActiveBlocksPerMultiprocessor(
      &result, &properties, &function, &state, shape.threads,
      static_cast<std::size_t>(shape.shared_bytes));
  return status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0;
}

}  // namespace

int main() {
  std::map<std::string, Shape> shapes;
  add<AllKernels>(shapes);
  int registers[3];
  char name[512];
  while (std::scanf("%d %d %d %511[^\n]", &registers[0], &registers[1], &registers[2], name) == 4) {
    const auto found = shapes.find(name);
    if (found == shapes.end()) {
      std::fprintf(stderr, "no list has a kernel %s\n", name);
      return 1;
    }
    std::printf("%d %d %d %s\n", blocks(8, registers[0], found->second),
                blocks(9, registers[1], found->second), blocks(10, registers[2], found->second),
                name);
  }
}
