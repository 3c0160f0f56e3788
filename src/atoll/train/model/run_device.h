#pragma once

// The devices of a run's ranks.

#include <memory>
#include <string>

#include "atoll/comm/gpu_links_use.h"
#include "atoll/comm/world.h"
#include "atoll/device/device.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// The device that this rank of `world` computes on, of which the ranks of a machine take their
/// shares: threads of a CPU, or a GPU each. Every rank must call it. Throws on all ranks, as
/// Error(kUser), what one of them cannot have, and CPUs beside GPUs.
std::unique_ptr<Device> open_run_device(const TrainConfig& config, comm::World& world);

/// The device of a rank that joins others under way, without a word to them: a CPU, as ranks with
/// GPUs do not outlive others.
std::unique_ptr<Device> open_joining_device(const TrainConfig& config, comm::World& world);

/// What moves tensors between the GPUs of `world` as comm.gpu says; null: host memory does.
/// `device` is this rank's and must outlive it. Every rank must call it. Throws Error(kUser) on all
/// ranks.
std::unique_ptr<comm::GpuLinksUse> connect_gpus(const TrainConfig& config, comm::World& world,
                                                Device& device);

/// What a run computes on, as checkpoints name what bits hang on: the GPU, and NCCL's version where
/// its sums are NCCL's. Empty: a CPU.
std::string describe_gpu(const TrainConfig& config, const Device& device, int num_ranks);

/// Says that a run which goes on has other bits from here on, where its steps were taken on another
/// kind of device. Each is what Position::gpu says.
void tell_other_device(const std::string& before, const std::string& now);

/// Whether the device is a GPU, be it one that the host plays.
bool is_gpu(const Device& device);

}  // namespace atl::train
