#include "atoll/ops/cuda/gpu_kernels.h"

#include <gtest/gtest.h>

#include <set>

#include "atoll/ops/nvcc/all_kernels.h"

namespace atl::ops::cuda {
namespace {

// nvcc and the host's compiler must agree on the name of each struct of operands.
TEST(CudaGpuKernels, AreThereForEachKernelOfTheHost) {
  std::set<const void*> all;
  AllKernels::for_each([&]<typename Kernel>(std::type_identity<Kernel>) {
    const void* const kernel = gpu_kernel(typeid(Kernel));
    EXPECT_NE(kernel, nullptr) << Kernel::kName;
    EXPECT_TRUE(all.insert(kernel).second) << Kernel::kName;
  });
}

TEST(CudaGpuKernels, AreNotThereForAnythingElse) {
  EXPECT_EQ(gpu_kernel(typeid(int)), nullptr);
}

}  // namespace
}  // namespace atl::ops::cuda
