#include "atoll/nn/fp8.h"

#include "atoll/nn/linear.h"

namespace atl::nn {

namespace {

class Chooser final : public ParamVisitor {
 public:
  explicit Chooser(ops::Fp8Scaling scaling) : scaling_(scaling) {}
  void param(Param& /*param*/) override {}
  void linear(Linear& linear) override { linear.use_fp8(scaling_); }

 private:
  ops::Fp8Scaling scaling_;
};

}  // namespace

void use_fp8(Model& model, ops::Fp8Scaling scaling) {
  Chooser chooser(scaling);
  model.visit(chooser);
}

}  // namespace atl::nn
