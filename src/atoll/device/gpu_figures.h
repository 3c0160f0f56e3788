#pragma once

#include <span>
#include <string_view>

namespace atl {

/// What a maker states of a GPU: dense products of bf16 with sums in f32, and memory.
struct GpuFigures {
  std::string_view name;   ///< a part of what the driver calls it, "H100 80GB HBM3"
  double bf16_tflops = 0;  ///< 10^12 operations a second, without sparsity
  double gb_per_s = 0;     ///< 10^9 bytes a second
  double memory_gb = 0;    ///< 10^9 bytes
};

/// All that are known: A100, H100, H200, RTX 4090, L40S, B200.
std::span<const GpuFigures> all_gpu_figures();

/// The figures of the GPU that the driver calls `name`: those with the longest name in it; null
/// when none fits.
const GpuFigures* find_gpu_figures(std::string_view name);

}  // namespace atl
