#pragma once

#include "atoll/nn/layer.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

/// Root-mean-square normalisation with a learned scale; see ops::rms_norm_forward.
class RmsNorm final : public Layer {
 public:
  /// weight: (C).
  RmsNorm(ops::RmsScale scale, Param weight) : scale_(scale), weight_(std::move(weight)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override { visitor.param(weight_); }

 private:
  ops::RmsScale scale_;
  Param weight_;
};

/// Mean-variance normalisation with a learned scale and shift; see ops::layer_norm_forward.
class LayerNorm final : public Layer {
 public:
  /// weight, bias: (C).
  LayerNorm(double eps, Param weight, Param bias)
      : eps_(eps), weight_(std::move(weight)), bias_(std::move(bias)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  double eps_;
  Param weight_;
  Param bias_;
};

}  // namespace atl::nn
