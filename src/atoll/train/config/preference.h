#pragma once

#include "atoll/data/jsonl/preference_rows.h"
#include "atoll/data/row.h"
#include "atoll/nn/preference_loss.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// The loss of a run that has preferences.
nn::PreferenceOptions preference_options(const TrainConfig& config);
/// Whether its loss compares with the model that the run began with.
bool needs_reference(const TrainConfig& config);
/// What the rows of a run's data compare.
data::PairKind pair_kind(const TrainConfig& config);
/// How a run's sequences are cut: by data.packing, or as pairs.
data::Packing packing_of(const TrainConfig& config);

}  // namespace atl::train
