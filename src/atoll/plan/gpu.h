#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/device/gpu_figures.h"
#include "atoll/plan/figures.h"
#include "atoll/train/config/config.h"

namespace atl::plan {

/// What a rank on `gpu` does, from what its maker states of it. Of that a run reaches a part:
/// products 0.80 and memory 0.90, as measured on an H200 (788 of 989 TFLOP/s, 4.3 of 4.8 TB/s);
/// attention a half before Hopper and 0.23 from it, as published kernels of mma.sync do; links
/// 0.80, which is assumed. Eight GPUs a host. `config` says in which dtype products are and, with
/// comm.gpu, which way collectives go; nothing hides these. Several GPUs have not run atoll yet.
Figures figures_of_gpu(const GpuFigures& gpu, const train::TrainConfig& config);

/// The same of a GPU at hand: its products, copies and memory are measured, its links are those of
/// `known`, or 25 GB/s where that is null. `size`: rows and columns of the product that is timed.
Figures measure_gpu(Device& device, const GpuFigures* known, const train::TrainConfig& config,
                    std::int64_t size = 8192);

/// What the planner goes by for a run on GPUs: those of `name` (see gpu_figures_named), or, where
/// that is empty, the GPU at hand. Throws Error(kUser) where there is none, and for the fake one.
Figures figures_for_gpu(const std::string& name, const train::TrainConfig& config);

/// Whether a run of `config` would compute on a GPU: by device.kind, or, where that is auto,
/// because this machine has one that can be used.
bool takes_gpu(const train::TrainConfig& config);

/// The arguments with device.kind = cuda among them, for a plan of a GPU that need not be here.
/// Throws Error(kUser) where the recipe or they say cpu.
std::vector<std::string> overrides_for_gpu(const std::filesystem::path& recipe,
                                           std::vector<std::string> overrides);

}  // namespace atl::plan
