#pragma once

#include <span>
#include <string_view>

namespace atl {

/// What a maker states of a GPU: dense products of bf16 with sums in f32, and memory.
struct GpuFigures {
  std::string_view name;      ///< a part of what the driver calls it, "H100 80GB HBM3"
  double bf16_tflops = 0;     ///< 10^12 operations a second, without sparsity
  double gb_per_s = 0;        ///< 10^9 bytes a second
  double memory_gb = 0;       ///< 10^9 bytes
  double f32_tflops = 0;      ///< 10^12 operations a second in f32, without tensor cores
  double links_gb_per_s = 0;  ///< to the other GPUs of its host, one way: NVLink, else PCIe
  double pcie_gb_per_s = 0;   ///< to its host, one way
  int architecture = 0;       ///< compute capability: 80, 89, 90, 100
};

/// All that are known: A100, H100, H200, RTX 4090, L40S, B200.
std::span<const GpuFigures> all_gpu_figures();

/// The figures of the GPU that the driver calls `name`: those with the longest name in it; null
/// when none fits.
const GpuFigures* find_gpu_figures(std::string_view name);

/// The first of all_gpu_figures() whose name has every word of what a person writes, in any case:
/// "h100", "A100 40GB", "rtx-4090". Throws Error(kUser) naming all that are known.
const GpuFigures& gpu_figures_named(std::string_view words);

}  // namespace atl
