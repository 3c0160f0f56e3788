// Every layer's B and W against central differences in double, and the composites' bookkeeping.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "atoll/nn/attention.h"
#include "atoll/nn/dropout.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/recompute.h"
#include "atoll/nn/scale.h"
#include "atoll/nn/sequential.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr Dtype kDouble = Dtype::kF64;
const Spec kX = {kDouble, {2, 5, 8}};

// Central differences with h = 1e-5 of a loss of order 1-10 in double: truncation h^2 ~ 1e-10 and
// rounding eps/h ~ 1e-10, times the condition of a few dozen terms.
constexpr double kTolerance = 1e-7;

void expect_gradients(Layer& layer, Spec x = kX) {
  LayerBench bench(layer, x);
  std::string where;
  EXPECT_LT(bench.worst_error(&where), kTolerance) << where;
}

Linear linear(std::int64_t in, std::int64_t out, bool bias = false) {
  return make_linear(kDouble, {{"linear", out}}, in, 0.1, bias);
}

std::unique_ptr<Layer> rms_norm() {
  return std::make_unique<RmsNorm>(1e-5, make_param("norm", {kDouble, {8}}, Init::one(), false));
}

TEST(Linear, GradientsMatchFiniteDifferences) {
  Linear plain = linear(8, 6);
  expect_gradients(plain);
  Linear with_bias = linear(8, 6, true);
  expect_gradients(with_bias);
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  expect_gradients(*rms_norm());
}

TEST(RmsNorm, GradientsMatchFiniteDifferencesWithAnOffset) {
  RmsNorm norm(ops::RmsScale(1e-5, 1), make_param("w", {kDouble, {8}}, Init::normal(0.3), false));
  expect_gradients(norm);
}

TEST(Scale, GradientsMatchFiniteDifferences) {
  Scale scale(0.3);
  expect_gradients(scale);
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  LayerNorm norm(1e-5, make_param("w", {kDouble, {8}}, Init::one(), false),
                 make_param("b", {kDouble, {8}}, Init::zero(), false));
  expect_gradients(norm);
}

TEST(GluMlp, GradientsMatchFiniteDifferences) {
  for (const Glu kind : {Glu::kSwiglu, Glu::kGegluTanh, Glu::kGegluErf}) {
    GluMlp mlp(kind, linear(8, 12), linear(6, 8));
    expect_gradients(mlp);
  }
}

TEST(GeluMlp, GradientsMatchFiniteDifferences) {
  for (const ops::Gelu kind : {ops::Gelu::kErf, ops::Gelu::kTanh}) {
    GeluMlp mlp(kind, linear(8, 12, true), linear(12, 8, true));
    expect_gradients(mlp);
  }
}

// Kept or made again, the activation has the same bits.
template <typename Make>
void expect_keeping_changes_no_bit(Make&& make) {
  const auto again = make(false), keeps = make(true);
  expect_gradients(*keeps);
  EXPECT_EQ(keeps->plan(kX).kept.size(), again->plan(kX).kept.size() + 1);
  EXPECT_EQ(keeps->plan(kX).owed.size() + 1, again->plan(kX).owed.size());
  LayerBench a(*again, kX), b(*keeps, kX);
  a.backward();
  b.backward();
  EXPECT_EQ(std::memcmp(a.dx.raw(), b.dx.raw(), a.dx.bytes()), 0);
  for (std::size_t p = 0; p < a.params.size(); ++p) {
    const Tensor left = a.params[p]->grad;
    EXPECT_EQ(std::memcmp(left.raw(), b.params[p]->grad.raw(), left.bytes()), 0);
  }
}

TEST(GluMlp, MayKeepItsActivation) {
  expect_keeping_changes_no_bit([](bool keep_all) {
    return std::make_unique<GluMlp>(Glu::kSwiglu, linear(8, 12), linear(6, 8), keep_all);
  });
}

TEST(GeluMlp, MayKeepItsActivation) {
  for (const bool bias : {false, true}) {
    expect_keeping_changes_no_bit([bias](bool keep_all) {
      return std::make_unique<GeluMlp>(ops::Gelu::kTanh, linear(8, 12, bias), linear(12, 8, bias),
                                       keep_all);
    });
  }
}

TEST(Sequential, MayKeepWhatANormGave) {
  expect_keeping_changes_no_bit([](bool keep_all) {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(rms_norm());
    layers.push_back(std::make_unique<Linear>(linear(8, 6)));
    return std::make_unique<Sequential>(std::move(layers), keep_all);
  });
}

std::unique_ptr<Layer> attention(const Constant* table) {
  return std::make_unique<SelfAttention>(
      SelfAttention::Options{.heads = {4, 2, 2}, .scale = 0.7, .rope_table = table}, linear(8, 16),
      linear(8, 8));
}

TEST(SelfAttention, GradientsMatchFiniteDifferences) {
  expect_gradients(*attention(nullptr));
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithRotation) {
  const auto table = make_rope_table(kDouble, 8, 2, 100.0);
  test::OwnedTensor<double> memory(table->spec.shape);
  table->value = memory.view();
  table->fill(table->value);
  expect_gradients(*attention(table.get()));
}

TEST(Dropout, GradientsMatchFiniteDifferences) {
  Dropout dropout(0.4, 1);
  expect_gradients(dropout);
}

TEST(Dropout, IsTheIdentityOutsideTraining) {
  Dropout dropout(0.4, 1);
  LayerBench bench(dropout, kX);
  bench.run.run.training = false;
  dropout.forward(bench.run, bench.pass());
  for (std::int64_t i = 0; i < bench.x.num_elements(); ++i) {
    EXPECT_EQ(bench.y.data<double>()[i], bench.x.data<double>()[i]);
  }
}

std::unique_ptr<Layer> block() {
  BuildOptions options;
  options.dropout = 0.2;
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_residual(rms_norm(), attention(nullptr), options, 1));
  layers.push_back(make_residual(
      rms_norm(), std::make_unique<GluMlp>(Glu::kSwiglu, linear(8, 12), linear(6, 8)), options, 2));
  return std::make_unique<Sequential>(std::move(layers));
}

TEST(Sequential, GradientsOfAWholeBlockMatchFiniteDifferences) {
  expect_gradients(*block());
}

// With dropout last in the branch, Residual adds; without, the products and the norm do.
TEST(Residual, GradientsMatchFiniteDifferencesWhoeverAdds) {
  for (const double dropout : {0.0, 0.3}) {
    BuildOptions options;
    options.dropout = dropout;
    const auto attending = make_residual(rms_norm(), attention(nullptr), options, 1);
    expect_gradients(*attending);
    const auto gated = make_residual(
        rms_norm(), std::make_unique<GluMlp>(Glu::kSwiglu, linear(8, 12), linear(6, 8)), options,
        2);
    expect_gradients(*gated);
  }
}

TEST(Residual, HasTheBranchAddWhereItCan) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(rms_norm());
  layers.push_back(std::make_unique<Linear>(linear(8, 8, true)));
  const auto branch = std::make_unique<Sequential>(std::move(layers));
  EXPECT_TRUE(branch->plan(kX).adds_residual);
  Residual residual(std::make_unique<Recompute>(std::make_unique<Linear>(linear(8, 8))));
  EXPECT_FALSE(residual.plan(kX).adds_residual);
  expect_gradients(residual);
}

TEST(Recompute, GradientsMatchFiniteDifferences) {
  Recompute recompute(block());
  expect_gradients(recompute);
}

TEST(Recompute, KeepsNothingAndChangesNoBit) {
  const auto bare = block();
  Recompute recompute(block());
  EXPECT_TRUE(recompute.plan(kX).kept.empty());
  EXPECT_FALSE(bare->plan(kX).kept.empty());
  LayerBench a(*bare, kX);
  LayerBench b(recompute, kX);
  a.backward();
  b.backward();
  ASSERT_EQ(a.params.size(), b.params.size());
  for (std::size_t p = 0; p < a.params.size(); ++p) {
    const Tensor left = a.params[p]->grad;
    EXPECT_EQ(std::memcmp(left.raw(), b.params[p]->grad.raw(), left.bytes()), 0)
        << a.params[p]->name;
  }
  EXPECT_EQ(std::memcmp(a.dx.raw(), b.dx.raw(), a.dx.bytes()), 0);
}

TEST(Sequential, PlanIsAPureFunctionOfTheSpec) {
  const auto layer = block();
  const Footprint first = layer->plan(kX);
  layer->plan({kDouble, {1, 3, 8}});
  const Footprint again = layer->plan(kX);
  EXPECT_EQ(first.kept, again.kept);
  EXPECT_EQ(first.owed, again.owed);
  EXPECT_EQ(first.scratch_bytes, again.scratch_bytes);
}

TEST(Sequential, OwesWhatANormGaveInsteadOfKeepingIt) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(rms_norm());
  layers.push_back(std::make_unique<Linear>(linear(8, 6)));
  Sequential sequence(std::move(layers));
  const Footprint plan = sequence.plan(kX);
  for (const Spec& kept : plan.kept) EXPECT_NE(kept, kX);
  EXPECT_EQ(std::count(plan.owed.begin(), plan.owed.end(), kX), 1) << "not its gradient too";
  expect_gradients(sequence);
}

TEST(Linear, RefusesAnInputOfAnotherWidth) {
  const Linear layer = linear(8, 6);
  EXPECT_THROW(layer.plan({kDouble, {2, 5, 9}}), Error);
}

}  // namespace
}  // namespace atl::nn
