#pragma once

// Gradient checks of any Layer: a loss sum(r * f(x)) with a fixed random r, its gradients by the
// layer's B and W, and the same by central differences in double.

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "atoll/nn/layer.h"
#include "atoll/ops/testing.h"

namespace atl::nn {

/// Owns the memory of one layer and of one pass through it.
class LayerBench final : public ParamVisitor {
 public:
  LayerBench(Layer& layer, Spec x_spec, int threads = 2)
      : run(threads), layer_(layer), footprint_(layer.plan(x_spec)) {
    x = make(x_spec, 1);
    r = make(footprint_.y, 2);
    y = make(footprint_.y, 0);
    dx = make(x_spec, 0);
    pass_kept_ = make_all(footprint_.kept);
    pass_owed_ = make_all(footprint_.owed);
    layer.visit(*this);
    run.run.seed = 7;
    run.run.step = 3;
  }

  void param(Param& param) override {
    Tensor value = make(param.spec, 10 + params.size());
    // Around 1 for norms' scales, small for the rest: a well-conditioned layer.
    const double shift = param.init.kind == Init::Kind::kOne ? 1.0 : 0.0;
    for (std::int64_t i = 0; i < value.num_elements(); ++i) {
      value.data<double>()[i] = shift + 0.5 * value.data<double>()[i];
    }
    param.value = value;
    if (!param.frozen) param.grad = make(param.spec, 0);
    params.push_back(&param);
  }
  void constant(Constant& constant) override {
    constant.value = make(constant.spec, 0);
    constant.fill(constant.value);
  }

  Pass pass() {
    return {
        .x = x, .y = y, .dx = dx, .dy = r, .kept = pass_kept_, .owed = pass_owed_, .batch = &batch};
  }

  double loss() {
    layer_.forward(run, pass());
    double sum = 0;
    for (std::int64_t i = 0; i < y.num_elements(); ++i) {
      sum += y.data<double>()[i] * r.data<double>()[i];
    }
    return sum;
  }

  /// The gradients by the layer's own passes, in dx and in each Param's grad.
  void backward() {
    layer_.forward(run, pass());
    // Whatever the passes do not declare must not matter to them: spoil it.
    if (footprint_.need_y == 0) spoil(y);
    layer_.backward_input(run, pass());
    if ((footprint_.need_x & kForWeight) == 0) spoil(x);
    layer_.backward_weight(run, pass());
  }

  /// The largest |analytic - numeric| over dx and every parameter's gradient, relative to the
  /// largest gradient; `where` names it.
  double worst_error(std::string* where) {
    const std::vector<double> saved_x(x.data<double>(), x.data<double>() + x.num_elements());
    backward();
    std::copy(saved_x.begin(), saved_x.end(), x.data<double>());
    double worst = check(x, dx, "x", where, 0);
    for (Param* param : params) {
      if (param->frozen) continue;
      worst = check(param->value, param->grad, param->name, where, worst);
    }
    return worst;
  }

  test::TestRun run;
  Tensor x, y, r, dx;
  Batch batch;  ///< empty, unless a test says where documents begin
  std::vector<Param*> params;

 private:
  Tensor make(Spec spec, std::uint64_t seed) {
    memory_.push_back(seed == 0 ? test::OwnedTensor<double>(spec.shape)
                                : test::random_tensor<double>(spec.shape, seed));
    return {memory_.back().values.data(), spec};  // indices are i32, and take less
  }
  std::vector<Tensor> make_all(const std::vector<Spec>& specs) {
    std::vector<Tensor> all;
    for (const Spec& spec : specs) all.push_back(make(spec, 0));
    return all;
  }
  static void spoil(Tensor tensor) {
    std::fill_n(tensor.data<double>(), tensor.num_elements(), std::nan(""));
  }

  double check(Tensor at, Tensor analytic, const std::string& name, std::string* where,
               double worst) {
    constexpr double kStep = 1e-5;
    double largest = 1e-6;
    std::vector<double> numeric(static_cast<std::size_t>(at.num_elements()));
    for (std::int64_t i = 0; i < at.num_elements(); ++i) {
      double& element = at.data<double>()[i];
      const double saved = element;
      element = saved + kStep;
      const double up = loss();
      element = saved - kStep;
      const double down = loss();
      element = saved;
      numeric[static_cast<std::size_t>(i)] = (up - down) / (2 * kStep);
      largest = std::max(largest, std::abs(numeric[static_cast<std::size_t>(i)]));
    }
    for (std::int64_t i = 0; i < at.num_elements(); ++i) {
      const double error =
          std::abs(analytic.data<double>()[i] - numeric[static_cast<std::size_t>(i)]) / largest;
      if (!(error <= worst)) {
        worst = error;
        *where = fmt::format("{}[{}]: {} against {}", name, i, analytic.data<double>()[i],
                             numeric[static_cast<std::size_t>(i)]);
      }
    }
    return worst;
  }

  Layer& layer_;
  Footprint footprint_;
  std::deque<test::OwnedTensor<double>> memory_;
  std::vector<Tensor> pass_kept_, pass_owed_;
};

}  // namespace atl::nn
