#include "atoll/nn/latent/latent_attention.h"

#include <gtest/gtest.h>

#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr Dtype kDouble = Dtype::kF64;
constexpr std::int64_t kWidth = 8, kHeads = 3, kPositions = 16;
const Spec kX = {kDouble, {2, 5, kWidth}};

// As of the other layers: see layers_test.cpp.
constexpr double kTolerance = 1e-7;

// The attention with its table of rotations, which a model would have.
struct WithTable final : Layer {
  explicit WithTable(const LatentShape& shape, bool bias = false)
      : table(make_rope_table(kDouble, kPositions, shape.rotary_dim, 100)) {
    const auto linear = [](const char* name, std::int64_t in, std::int64_t out, bool has_bias) {
      return make_linear(kDouble, {{name, out}}, in, 0.1, has_bias);
    };
    const auto norm = [](const char* name, std::int64_t width) {
      return make_param(name, {kDouble, {width}}, Init::one(), false);
    };
    const ops::HeadLayout heads = {kHeads, kHeads, shape.head_dim()};
    const std::int64_t queries = kHeads * shape.query_dim();
    std::unique_ptr<Linear> query_down;
    Param query_norm;
    if (shape.query_rank > 0) {
      query_down = std::make_unique<Linear>(linear("q_a", kWidth, shape.query_rank, bias));
      query_norm = norm("q_norm", shape.query_rank);
    }
    LatentAttention::Projections projections = {
        .query_down = std::move(query_down),
        .query_norm = std::move(query_norm),
        .query = linear("q", shape.query_rank > 0 ? shape.query_rank : kWidth, queries, false),
        .latent = linear("kv_a", kWidth, shape.kv_rank + shape.rotary_dim, bias),
        .latent_norm = norm("kv_norm", shape.kv_rank),
        .key_value =
            linear("kv_b", shape.kv_rank, kHeads * (shape.content_dim + shape.value_dim), false),
        .out = linear("o", kHeads * shape.value_dim, kWidth, bias)};
    attention = std::make_unique<LatentAttention>(
        LatentAttention::Options{
            .heads = heads, .shape = shape, .scale = 0.4, .rope_table = table.get()},
        std::move(projections));
  }
  Footprint plan(Spec x) const override { return attention->plan(x); }
  void forward(Run& run, const Pass& pass) override { attention->forward(run, pass); }
  void backward_input(Run& run, const Pass& pass) override { attention->backward_input(run, pass); }
  void backward_weight(Run& run, const Pass& pass) override {
    attention->backward_weight(run, pass);
  }
  void visit(ParamVisitor& visitor) override {
    visitor.constant(*table);
    attention->visit(visitor);
  }

  std::unique_ptr<Constant> table;
  std::unique_ptr<LatentAttention> attention;
};

void expect_gradients(Layer& layer) {
  LayerBench bench(layer, kX);
  std::string where;
  EXPECT_LT(bench.worst_error(&where), kTolerance) << where;
}

TEST(LatentAttention, GradientsMatchFiniteDifferences) {
  // Values narrower than keys, as wide, and wider; queries of x, and of a latent vector.
  for (const std::int64_t value_dim : {3, 6, 7}) {
    WithTable of_x({.kv_rank = 5, .content_dim = 2, .rotary_dim = 4, .value_dim = value_dim});
    expect_gradients(of_x);
    WithTable of_latent({.kv_rank = 5,
                         .query_rank = 6,
                         .content_dim = 2,
                         .rotary_dim = 4,
                         .value_dim = value_dim,
                         .rotates_neighbours = false});
    expect_gradients(of_latent);
  }
  WithTable with_biases(
      {.kv_rank = 5, .query_rank = 3, .content_dim = 3, .rotary_dim = 2, .value_dim = 4},
      /*bias=*/true);
  expect_gradients(with_biases);
}

TEST(LatentAttention, FrozenProjectionsAndNormsHaveNoGradients) {
  WithTable layer(
      {.kv_rank = 5, .query_rank = 6, .content_dim = 2, .rotary_dim = 4, .value_dim = 3});
  struct Freeze final : ParamVisitor {
    void param(Param& param) override { param.frozen = param.name.find("q") == std::string::npos; }
  } freeze;
  layer.visit(freeze);
  expect_gradients(layer);
}

}  // namespace
}  // namespace atl::nn
