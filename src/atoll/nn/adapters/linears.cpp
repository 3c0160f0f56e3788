#include "atoll/nn/adapters/linears.h"

#include <algorithm>

namespace atl::nn {

std::vector<Linear*> linears_of(const Model& model) {
  struct Finder final : ParamVisitor {
    void linear(Linear& linear) override {
      if (std::ranges::find(all, &linear) == all.end()) all.push_back(&linear);
    }
    void param(Param& /*param*/) override {}
    std::vector<Linear*> all;
  } found;
  model.visit(found);
  return found.all;
}

}  // namespace atl::nn
