#include "atoll/ops/cuda/gpu_kernels.h"

#include "atoll/ops/nvcc/gpu_table.h"

namespace atl::ops::cuda {

const void* gpu_kernel(const std::type_info& kernel) {
  static const GpuTable table = [] {
    GpuTable all;
    add_activation_kernels(all);
    add_attention_kernels(all);
    add_attention_mma_kernels(all);
    add_block_diagonal_kernels(all);
    add_codes_kernels(all);
    add_column_sum_kernels(all);
    add_copy_blocks_kernels(all);
    add_cross_entropy_kernels(all);
    add_elementwise_kernels(all);
    add_embedding_kernels(all);
    add_expert_rows_kernels(all);
    add_factors_kernels(all);
    add_fp8_kernels(all);
    add_grouped_matmul_kernels(all);
    add_grouped_matmul_mma_kernels(all);
    add_muon_kernels(all);
    add_narrow_weights_kernels(all);
    add_norm_kernels(all);
    add_rope_kernels(all);
    add_routing_kernels(all);
    add_sample_token_kernels(all);
    add_signs_kernels(all);
    add_update_kernels(all);
    add_vocabulary_part_kernels(all);
    return all;
  }();
  const auto found = table.find(kernel);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace atl::ops::cuda
