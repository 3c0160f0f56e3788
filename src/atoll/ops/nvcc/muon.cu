#include "atoll/ops/cuda/muon.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_muon_kernels(GpuTable& table) {
  add_compiled<MuonKernels>(table);
}

}  // namespace atl::ops::cuda
