#pragma once

// Texts that a model writes while it is trained (eval.samples).

#include <cstdint>
#include <filesystem>

#include "atoll/train/config/config.h"

namespace atl::cli {

/// The file of a run's directory that has them: a line an object of step, time, prompt and text.
inline constexpr const char* kSamplesFile = "samples.jsonl";

/// Throws Error(kUser) where the prompts are none that a model of `config` can begin with.
void write_samples(const train::TrainConfig& config, std::int64_t step,
                   const std::filesystem::path& checkpoint);

}  // namespace atl::cli
