#include "atoll/serve/model_ranks.h"

namespace atl::serve {

// Ranks that share products talk most, so they are neighbours; next come those that share experts.
ModelRanks::ModelRanks(comm::World& world, const ModelLayout& layout)
    : world_(world),
      layout_(layout),
      mesh_(world, {{.name = "pp", .size = layout.pipeline, .point_to_point = true},
                    {"ep", layout.experts},
                    {"tp", layout.tensor}}) {}

}  // namespace atl::serve
