#include "atoll/train/config/optimizer.h"

namespace atl::train {

optim::OptimizerOptions optimizer_options(const OptimSettings& settings) {
  return {.kind = settings.kind,
          .values = optim::values_for(optim::find_optimizer(settings.kind), settings.values),
          .peak_lr = settings.lr,
          .masters = optim::masters(settings.masters)};
}

}  // namespace atl::train
