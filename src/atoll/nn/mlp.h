#pragma once

#include "atoll/nn/linear.h"
#include "atoll/ops/activation.h"

namespace atl::nn {

/// y = down(silu(gate(x)) * up(x)), gate and up fused into one product.  x, y: (..., C).
class SwigluMlp final : public Layer {
 public:
  /// gate_up: C -> 2F, down: F -> C.
  SwigluMlp(Linear gate_up, Linear down) : gate_up_(std::move(gate_up)), down_(std::move(down)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  Linear gate_up_;
  Linear down_;
};

/// y = out(gelu(in(x))), GPT-2's.  x, y: (..., C).
class GeluMlp final : public Layer {
 public:
  /// in: C -> F, out: F -> C.
  GeluMlp(ops::Gelu kind, Linear in, Linear out)
      : kind_(kind), in_(std::move(in)), out_(std::move(out)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  ops::Gelu kind_;
  Linear in_;
  Linear out_;
};

}  // namespace atl::nn
