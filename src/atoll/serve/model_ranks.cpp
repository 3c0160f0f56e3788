#include "atoll/serve/model_ranks.h"

namespace atl::serve {

// Ranks that share products, or experts, talk most, so they are neighbours.
ModelRanks::ModelRanks(comm::World& world, const ModelLayout& layout)
    : world_(world),
      layout_(layout),
      mesh_(world, {{.name = "pp", .size = layout.pipeline, .point_to_point = true},
                    {"tp", layout.tensor},
                    {"ep", layout.experts}}) {}

}  // namespace atl::serve
