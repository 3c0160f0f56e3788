#pragma once

// Which ranks share a copy of the parameters, and which have parts of the model.

#include <cstdint>

#include "atoll/parallel/runner/pipeline_part.h"
#include "atoll/parallel/store/store_data_parallel.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// Where a rank is on each axis of the layout, from the axis whose neighbours are neighbours
/// outwards: see axes_of in train/ranks/ranks.cpp.
struct RankPlace {
  int tensor = 0;
  int expert = 0;
  int stage = 0;    ///< of the pipeline
  int context = 0;  ///< which part of the sequences it has
  int sharing = 0;  ///< among ranks with the same part of the model and of the sequences
};

/// Where `rank` of the world is. Pure arithmetic: the sizes of parallel.* are not checked.
RankPlace place_of(const TrainConfig& config, int rank);

/// How many of `num_ranks` ranks are data parallel, which have micro-batches of their own: each
/// stands for parallel.cp x parallel.pp x parallel.tp of them. Throws Error(kUser) when these, or
/// groups of parallel.ep, do not fit.
int data_parallel_ranks(const TrainConfig& config, int num_ranks);

/// How so many data-parallel ranks share a model: of each parallel.ep neighbours, which have other
/// experts, one shares with one of the next. Throws Error(kUser) as above.
parallel::DataParallelOptions data_parallel_options(const TrainConfig& config, int data_ranks,
                                                    int rank);

/// How rank `rank` of `num_ranks` of a run shares parameters with those that have the same part of
/// the model: the data-parallel ranks, and those that have other parts of their sequences.
parallel::DataParallelOptions sharing_options(const TrainConfig& config, int num_ranks, int rank);

/// The pipeline of a rank at stage `place`, of `data_ranks` pipelines. Throws Error(kUser) where
/// the micro-batches cannot be shared evenly.
parallel::PipelineOptions pipeline_options(const TrainConfig& config, int data_ranks, int place);

/// Throws Error(kUser) when so many ranks do not fit the settings, whatever the model.
void check_ranks(const TrainConfig& config, int num_ranks);

}  // namespace atl::train
