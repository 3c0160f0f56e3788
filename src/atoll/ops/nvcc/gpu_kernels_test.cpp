#include "atoll/ops/cuda/gpu_kernels.h"

#include <gtest/gtest.h>

#include <set>

#include "atoll/ops/cuda/activation.cuh"
#include "atoll/ops/cuda/attention.cuh"
#include "atoll/ops/cuda/attention_mma.cuh"
#include "atoll/ops/cuda/block_diagonal.cuh"
#include "atoll/ops/cuda/codes.cuh"
#include "atoll/ops/cuda/column_sum.cuh"
#include "atoll/ops/cuda/copy_blocks.cuh"
#include "atoll/ops/cuda/cross_entropy.cuh"
#include "atoll/ops/cuda/elementwise.cuh"
#include "atoll/ops/cuda/embedding.cuh"
#include "atoll/ops/cuda/expert_rows.cuh"
#include "atoll/ops/cuda/factors.cuh"
#include "atoll/ops/cuda/grouped_matmul.cuh"
#include "atoll/ops/cuda/grouped_matmul_mma.cuh"
#include "atoll/ops/cuda/muon.cuh"
#include "atoll/ops/cuda/narrow_weights.cuh"
#include "atoll/ops/cuda/norm.cuh"
#include "atoll/ops/cuda/norm_wide.cuh"
#include "atoll/ops/cuda/rope.cuh"
#include "atoll/ops/cuda/routing.cuh"
#include "atoll/ops/cuda/sample_token.cuh"
#include "atoll/ops/cuda/signs.cuh"
#include "atoll/ops/cuda/update.cuh"
#include "atoll/ops/cuda/vocabulary_part.cuh"

namespace atl::ops::cuda {
namespace {

using AllKernels =
    Joined<ActivationKernels, AttentionKernels, AttentionMmaKernels, BlockDiagonalKernels,
           CodesKernels, ColumnKernels, CopyBlocksKernels, CrossEntropyKernels, ElementwiseKernels,
           EmbeddingKernels, ExpertRowsKernels, FactorsKernels, GroupedMatmulKernels,
           GroupedMmaKernels, MuonKernels, NarrowWeightsKernels, NormKernels, QkNormKernels,
           RopeKernels, RoutingKernels, SampleTokenKernels, SignsKernels, UpdateKernels,
           VocabularyPartKernels, WideNormKernels>;

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
