#include "atoll/device/gpu_figures.h"

namespace atl {

namespace {

// NVIDIA's data sheets: A100 (2021), H100 and H200 (2024), Ada architecture (2022), L40S (2023),
// Blackwell HGX (2024). Where these state products with sparsity, half of that.
constexpr GpuFigures kFigures[] = {
    {"A100-SXM4-40GB", 312, 1555, 40},
    {"A100-SXM4-80GB", 312, 2039, 80},
    {"A100-PCIE-40GB", 312, 1555, 40},
    {"A100 80GB PCIe", 312, 1935, 80},
    {"H100 80GB HBM3", 989, 3350, 80},
    {"H100 PCIe", 756, 2000, 80},
    {"H200", 989, 4800, 141},
    {"RTX 4090", 165, 1008, 24},
    {"L40S", 362, 864, 48},
    {"B200", 2250, 8000, 180},
};

}  // namespace

std::span<const GpuFigures> all_gpu_figures() {
  return kFigures;
}

const GpuFigures* find_gpu_figures(std::string_view name) {
  const GpuFigures* best = nullptr;
  for (const GpuFigures& figures : kFigures) {
    if (name.find(figures.name) == name.npos) continue;
    if (best == nullptr || figures.name.size() > best->name.size()) best = &figures;
  }
  return best;
}

}  // namespace atl
