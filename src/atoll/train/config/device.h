#pragma once

#include "atoll/device/choose_device.h"
#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers device.*.
void add_device(SettingRegistry& settings, DeviceSettings& device);

/// Throws Error(kUser) where device.* are refused: for commands that have no other settings of a
/// run.
void validate_device(const TrainConfig& config, const Settings& settings);

/// Whose memory is planned: a GPU's where device.kind is cuda or fake_cuda. Whoever has opened a
/// device of kind auto knows better.
DeviceKind kind_of(const DeviceSettings& device);

/// What a run computes on: of several GPUs that with this index, or so many threads of a CPU.
ChosenDevice chosen_device(const DeviceSettings& device, int index, int threads);

/// Throws Error(kUser) naming what of `config` a run on a GPU cannot do yet. For device.kind =
/// auto, once a GPU was found; else the rules have done so.
void refuse_on_gpu(const TrainConfig& config);

}  // namespace atl::train
