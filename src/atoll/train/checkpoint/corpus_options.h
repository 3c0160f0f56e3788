#pragma once

// What the settings of a run and its checkpoints say about its data.

#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"

namespace atl::train {

/// Where the settings say that the run's data comes from. Throws Error(kUser) for a chat template
/// that is no file.
CorpusOptions corpus_options(const TrainConfig& config);

/// Throws Error(kUser) when the settings ask for evaluations and the corpus holds nothing out.
void require_held_out(const TrainConfig& config, const PreparedCorpus& corpus);

}  // namespace atl::train
