#pragma once

// What a run's settings mean for its model, memory and data.

#include <cstdint>

#include "atoll/train/config.h"
#include "atoll/train/corpus.h"
#include "atoll/train/state.h"

namespace atl::train {

/// The model and memory that a run of `config` on a vocabulary of this size would have.
StateOptions state_options(const TrainConfig& config, std::int64_t vocab_size,
                           std::int64_t eos_token);

/// Where the settings say that the run's data comes from.
CorpusOptions corpus_options(const TrainConfig& config);

}  // namespace atl::train
