#pragma once

// Settings that are left to the data: how long a run of epochs is, and how conversations are
// packed.

#include <cstdint>

#include "atoll/train/config/recipe.h"
#include "atoll/train/corpus/corpus.h"

namespace atl::train {

/// The steps that train.epochs takes: the samples of these epochs, train.batch_size of them a step,
/// rounded up. At least 1.
std::int64_t steps_of_epochs(const TrainConfig& config, const PreparedCorpus& corpus);

/// Sets train.steps where train.epochs is given, and data.packing = documents where it is not given
/// and some rows of the data have a loss on a part of them only; a run that has checkpoints keeps
/// the packing it was trained with. Makes the tokens of data.text for that. Does nothing where
/// neither is open. `tells`: say in the log what was chosen. Throws Error(kUser) as prepare_corpus
/// and for train.steps beside train.epochs that disagree.
void settle_by_data(Recipe& recipe, bool tells);

}  // namespace atl::train
