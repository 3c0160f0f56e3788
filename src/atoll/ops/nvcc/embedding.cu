#include "atoll/ops/cuda/embedding.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_embedding_kernels(GpuTable& table) {
  add_compiled<EmbeddingKernels>(table);
}

}  // namespace atl::ops::cuda
