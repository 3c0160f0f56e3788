// Two branches of one x: gradients against central differences in double, and what is kept.

#include "atoll/nn/parallel_residual.h"

#include <gtest/gtest.h>

#include "atoll/nn/mlp.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr Dtype kDouble = Dtype::kF64;
const Spec kX = {kDouble, {2, 5, 8}};

// As in layers_test.cpp: truncation and rounding are both about 1e-10 of a loss of order 1-10,
// times the condition of a few dozen terms.
constexpr double kTolerance = 1e-7;

Linear linear(const char* name, std::int64_t in, std::int64_t out) {
  return make_linear(kDouble, {{name, out}}, in, 0.1, /*bias=*/true);
}

std::unique_ptr<Layer> norm(const char* name) {
  return std::make_unique<RmsNorm>(1e-5, make_param(name, {kDouble, {8}}, Init::one(), false));
}

std::unique_ptr<Layer> first(const BuildOptions& options) {
  return make_branch(norm("first norm"), std::make_unique<Linear>(linear("first", 8, 8)), options,
                     1);
}

std::unique_ptr<Layer> second(const BuildOptions& options) {
  return make_branch(
      norm("second norm"),
      std::make_unique<GeluMlp>(ops::Gelu::kErf, linear("in", 8, 6), linear("out", 6, 8)), options,
      2);
}

// With dropout last in the branch, or recompute around it, the layer itself adds.
BuildOptions options_of(double dropout, RecomputeMode recompute) {
  BuildOptions options;
  options.dropout = dropout;
  options.recompute = recompute;
  return options;
}

TEST(ParallelResidual, GradientsMatchFiniteDifferencesWhoeverAdds) {
  for (const double dropout : {0.0, 0.3}) {
    for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kSelective}) {
      for (const bool adds_x : {true, false}) {
        const BuildOptions options = options_of(dropout, recompute);
        ParallelResidual layer(first(options), second(options), adds_x);
        LayerBench bench(layer, kX);
        std::string where;
        EXPECT_LT(bench.worst_error(&where), kTolerance) << where;
      }
    }
  }
}

// y = x + f(x) + g(x), with f and g as they are by themselves.
TEST(ParallelResidual, AddsBothBranchesOfTheSameX) {
  const auto f = first({}), g = second({});
  ParallelResidual layer(first({}), second({}));
  LayerBench both(layer, kX), alone_f(*f, kX), alone_g(*g, kX);
  const std::size_t of_first = alone_f.params.size();
  ASSERT_EQ(both.params.size(), of_first + alone_g.params.size());
  for (std::size_t i = 0; i < both.params.size(); ++i) {
    const Param& from = i < of_first ? *alone_f.params[i] : *alone_g.params[i - of_first];
    std::copy_n(from.value.data<double>(), from.value.num_elements(),
                both.params[i]->value.data<double>());
  }
  layer.forward(both.run, both.pass());
  f->forward(alone_f.run, alone_f.pass());
  g->forward(alone_g.run, alone_g.pass());
  for (std::int64_t i = 0; i < both.y.num_elements(); ++i) {
    const double expected =
        both.x.data<double>()[i] + alone_f.y.data<double>()[i] + alone_g.y.data<double>()[i];
    EXPECT_NEAR(both.y.data<double>()[i], expected, 1e-13);
  }
}

TEST(ParallelResidual, KeepsNothingOfABranchThatIsRecomputed) {
  const BuildOptions none, selective = options_of(0, RecomputeMode::kSelective);
  const std::size_t of_first = first(none)->plan(kX).kept.size();
  ParallelResidual all(first(none), second(none));
  ParallelResidual less(first(selective), second(selective));
  EXPECT_GT(all.plan(kX).kept.size(), of_first);
  EXPECT_EQ(less.plan(kX).kept.size(), of_first);
}

}  // namespace
}  // namespace atl::nn
