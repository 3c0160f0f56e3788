#pragma once

// What a run's settings mean for its model, memory and data.

#include <cstdint>

#include "atoll/train/config/config.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// The model and memory that rank `rank` of `num_ranks` ranks of a run of `config` on a vocabulary
/// of this size would have. Throws Error(kUser) when the ranks do not fit the
/// settings.
StateOptions state_options(const TrainConfig& config, std::int64_t vocab_size,
                           std::int64_t eos_token, int num_ranks = 1, int rank = 0);

/// Throws Error(kUser) with `remedy` where parallel.layout is auto: the planner has not been asked.
void require_chosen_layout(const TrainConfig& config, const std::string& remedy);

/// Makes device.bf16 what this process multiplies bf16 with. Throws Error(kUser) for `library` on a
/// CPU that has none.
void apply_bf16(const TrainConfig& config);

/// Makes device.attention what this process's GPU carries out attention with, where the run's
/// device is, or may be, a GPU.
void apply_attention(const TrainConfig& config);

/// Throws Error(kUser) where device.attention is cudnn and cuDNN serves no layer of `model` in this
/// run.
void check_attention(const TrainConfig& config, const nn::ModelConfig& model);

}  // namespace atl::train
