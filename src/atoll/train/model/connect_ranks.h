#pragma once

#include <memory>

#include "atoll/train/ranks/ranks.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// Groups of a model's ranks beside those that Ranks has.
struct ModelGroups {
  std::unique_ptr<comm::Group> kv_copies;      ///< null: each rank has whole products
  std::unique_ptr<comm::Group> pipeline_ends;  ///< null: see PipelinePart::connect
};

/// Tells `state`, which has its memory, which ranks have the other parts of its model and data.
/// `ranks` and what this returns must outlive it. Every rank must call it.
ModelGroups connect_ranks(TrainState& state, Ranks& ranks);

}  // namespace atl::train
