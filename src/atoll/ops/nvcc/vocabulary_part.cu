#include "atoll/ops/cuda/vocabulary_part.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_vocabulary_part_kernels(GpuTable& table) {
  add_compiled<VocabularyPartKernels>(table);
}

}  // namespace atl::ops::cuda
