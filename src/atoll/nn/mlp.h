#pragma once

#include "atoll/nn/linear.h"
#include "atoll/ops/activation/activation.h"

namespace atl::nn {

/// What the gate goes through: SiLU, or a GELU (Shazeer 2020).
enum class Glu { kSwiglu, kGegluTanh, kGegluErf };

/// y = down(act(gate(x)) * up(x)), gate and up fused into one product.  x, y: (..., C).
class GluMlp final : public Layer {
 public:
  /// gate_up: C -> 2F, down: F -> C. `keep_all`: the activation is kept rather than made again.
  GluMlp(Glu kind, Linear gate_up, Linear down, bool keep_all = false)
      : kind_(kind), gate_up_(std::move(gate_up)), down_(std::move(down)), keep_all_(keep_all) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  ops::Gelu gelu() const { return kind_ == Glu::kGegluErf ? ops::Gelu::kErf : ops::Gelu::kTanh; }

  Glu kind_;
  Linear gate_up_;
  Linear down_;
  bool keep_all_;
};

/// y = out(gelu(in(x))), GPT-2's.  x, y: (..., C).
class GeluMlp final : public Layer {
 public:
  /// in: C -> F, out: F -> C. `keep_all` as for GluMlp.
  GeluMlp(ops::Gelu kind, Linear in, Linear out, bool keep_all = false)
      : kind_(kind), in_(std::move(in)), out_(std::move(out)), keep_all_(keep_all) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  // Of the gradient of what the first product gave; undefined where no bias needs them.
  Tensor bias_sums(const Pass& pass) const;

  ops::Gelu kind_;
  Linear in_;
  Linear out_;
  bool keep_all_;
};

}  // namespace atl::nn
