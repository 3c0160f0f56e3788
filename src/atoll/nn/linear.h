#pragma once

#include "atoll/nn/layer.h"

namespace atl::nn {

/// y = x W^T [+ b].  x: (..., in)  y: (..., out)  W: (out, in), as Hugging Face stores it.
class Linear final : public Layer {
 public:
  /// `bias` with an empty name means no bias. W's spec is (out, in).
  explicit Linear(Param weight, Param bias = {});

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  bool has_bias() const { return !bias_.name.empty(); }

  Param weight_;
  Param bias_;
};

}  // namespace atl::nn
