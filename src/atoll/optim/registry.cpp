#include "atoll/optim/registry.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "atoll/base/check.h"
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

namespace {

constexpr std::size_t kMostKinds = 64;  // references to them stay valid when others are added

std::vector<OptimizerKind>& all_kinds() {
  static std::vector<OptimizerKind> kinds = [] {
    std::vector<OptimizerKind> all;
    all.reserve(kMostKinds);
#define ATOLL_CALL(function) all.push_back(function());
    ATOLL_OPTIMIZERS(ATOLL_CALL)
#undef ATOLL_CALL
    return all;
  }();
  return kinds;
}

}  // namespace

std::span<const OptimizerKind> optimizer_kinds() {
  return all_kinds();
}

AddedOptimizer::AddedOptimizer(OptimizerKind kind) {
  std::vector<OptimizerKind>& kinds = all_kinds();
  for (const OptimizerKind& other : kinds) {
    ATOLL_CHECK(std::string_view(kind.name) != other.name, "there is an optimizer {}", kind.name);
  }
  ATOLL_CHECK(kinds.size() < kMostKinds, "{} optimizers are the most", kMostKinds);
  kinds.push_back(std::move(kind));
}

AddedOptimizer::~AddedOptimizer() {
  all_kinds().pop_back();
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
