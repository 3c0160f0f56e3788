#pragma once

#include <cstddef>

#include "atoll/comm/world.h"
#include "atoll/device/device.h"
#include "atoll/train/config/config.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// What a command that trains says when there is too little memory.
inline constexpr const char* kTrainingMemoryAdvice =
    "use a smaller train.micro_batch or model, or train.recompute=full";

/// Refuses memory that this machine does not have for all its ranks, before the system says yes to
/// what it then kills them for: Error(kResource) with both numbers. `is_least`: more may be planned
/// in the end.
void check_memory(std::size_t planned, const comm::World& world, bool is_least = false);
/// The same of `device`: where it is a GPU, what is free of its memory, before the rank takes any.
void check_memory_of(Device& device, std::size_t planned, const comm::World& world,
                     bool is_least = false);

/// The same of what the parameters of a model take at least, before it is built: models of absurd
/// sizes take long to build. The error names the model's file and sizes.
void check_parameters(const TrainConfig& config, const StateOptions& options, Device& device,
                      const comm::World& world);
/// The same of all that `state` takes.
void check_state(const TrainConfig& config, const TrainState& state, Device& device,
                 const comm::World& world, bool is_least = false);

/// The same of `num_ranks` ranks on this machine's CPUs, before they are started; on GPUs nothing
/// is checked.
void check_before_ranks(const TrainConfig& config, int num_ranks);

/// Refuses what needs no token to be known, before any text is read: mistakes in what the model
/// is, LoRA targets that it has not, more memory than there is with the
/// smallest vocabulary that its tokenizer can have. Throws Error(kUser) or Error(kResource).
void check_before_tokens(const TrainConfig& config, Device& device, const comm::World& world);

}  // namespace atl::train
