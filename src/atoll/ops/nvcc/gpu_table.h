#pragma once

#include <typeindex>
#include <unordered_map>

namespace atl::ops::cuda {

/// From the struct of operands to what cudaLaunchKernel takes.
using GpuTable = std::unordered_map<std::type_index, const void*>;

// One function for each .cu file, which adds its kernels.
void add_activation_kernels(GpuTable& table);
void add_attention_kernels(GpuTable& table);
void add_attention_mma_kernels(GpuTable& table);
void add_block_diagonal_kernels(GpuTable& table);
void add_codes_kernels(GpuTable& table);
void add_column_sum_kernels(GpuTable& table);
void add_copy_blocks_kernels(GpuTable& table);
void add_cross_entropy_kernels(GpuTable& table);
void add_elementwise_kernels(GpuTable& table);
void add_embedding_kernels(GpuTable& table);
void add_expert_rows_kernels(GpuTable& table);
void add_factors_kernels(GpuTable& table);
void add_fp8_kernels(GpuTable& table);
void add_grouped_matmul_kernels(GpuTable& table);
void add_grouped_matmul_mma_kernels(GpuTable& table);
void add_muon_kernels(GpuTable& table);
void add_narrow_weights_kernels(GpuTable& table);
void add_norm_kernels(GpuTable& table);
void add_rope_kernels(GpuTable& table);
void add_routing_kernels(GpuTable& table);
void add_sample_token_kernels(GpuTable& table);
void add_signs_kernels(GpuTable& table);
void add_update_kernels(GpuTable& table);
void add_vocabulary_part_kernels(GpuTable& table);

}  // namespace atl::ops::cuda
