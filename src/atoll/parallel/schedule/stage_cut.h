#pragma once

#include "atoll/nn/model.h"
#include "atoll/parallel/schedule/pipeline.h"

namespace atl::parallel {

/// Cuts a whole model, which has no memory yet, to the stages of one rank; they keep their order.
/// Layers and parameters stay as they are, so that names, initial values and random draws are those
/// of the whole model: Param::number says which they are there. A tied head keeps the embedding's
/// parameter on its rank: two ranks then have it, unless the pipeline brings both to the same.
void keep_stages(nn::Model& model, const Pipeline& pipeline, int rank);

}  // namespace atl::parallel
