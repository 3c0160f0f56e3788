#include "atoll/optim/registry.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::optim {

// Every optimizer: a line for each, the default first, in the order that texts list them. A line
// names the function at the end of the optimizer's file.
#define ATOLL_OPTIMIZERS(OPTIMIZER) \
  OPTIMIZER(adamw_optimizer)        \
  OPTIMIZER(muon_optimizer)         \
  OPTIMIZER(lion_optimizer)         \
  OPTIMIZER(sgd_optimizer)

#define ATOLL_DECLARE(function) OptimizerKind function();
ATOLL_OPTIMIZERS(ATOLL_DECLARE)
#undef ATOLL_DECLARE

std::span<const OptimizerKind> optimizer_kinds() {
#define ATOLL_CALL(function) function(),
  static const std::vector<OptimizerKind> kinds = {ATOLL_OPTIMIZERS(ATOLL_CALL)};
#undef ATOLL_CALL
  return kinds;
}

const OptimizerKind& find_optimizer(const std::string& name) {
  const std::span<const OptimizerKind> kinds = optimizer_kinds();
  for (const OptimizerKind& kind : kinds) {
    if (name == kind.name) return kind;
  }
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kinds) names.emplace_back(kind.name);
  throw user_error("the optimizer is \"{}\"; it must be {}", name, enumerated(names, "or"));
}

bool OptimizerKind::reads(const std::string& option) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const Option& mine) { return mine.name == option; });
}

}  // namespace atl::optim
