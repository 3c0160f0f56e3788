// Attention's variants against central differences in double, and documents packed into one row.

#include "atoll/nn/attention.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr Dtype kDouble = Dtype::kF64;
constexpr std::int64_t kLength = 7;
constexpr ops::HeadLayout kHeads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 4};
const Spec kX = {kDouble, {2, kLength, 8}};

// As in layers_test.cpp: truncation and rounding are both about 1e-10 of a loss of order 1-10,
// times the condition of a few dozen terms.
constexpr double kTolerance = 1e-7;

struct Variant {
  ops::HeadLayout heads = kHeads;
  bool qkv_by_head = false;
  bool bias = false;
  bool qk_norm = false;
  std::int64_t rotated = 0;  ///< elements of each head
  ops::RotaryPairs pairs = ops::RotaryPairs::kHalves;
  std::int64_t window = 0;
  double softcap = 0;
};

// A layer and the table that it rotates by.
struct Attention {
  explicit Attention(const Variant& variant)
      : table(make_rope_table(kDouble, kLength,
                              variant.rotated > 0 ? variant.rotated : variant.heads.head_dim, 50.0,
                              {.kind = RopeScaling::Kind::kLinear, .factor = 2})),
        table_memory(table->spec.shape) {
    table->value = table_memory.view();
    table->fill(table->value);
    const auto norm = [&](const char* name) {
      return variant.qk_norm
                 ? make_param(name, {kDouble, {kHeads.head_dim}}, Init::one(), /*decay=*/false)
                 : Param{};
    };
    layer = std::make_unique<SelfAttention>(
        SelfAttention::Options{.heads = variant.heads,
                               .scale = 0.7,
                               .softcap = variant.softcap,
                               .rope_table = variant.rotated > 0 ? table.get() : nullptr,
                               .rotary_pairs = variant.pairs,
                               .qkv_by_head = variant.qkv_by_head,
                               .window = variant.window,
                               .qk_norm = 1e-3},
        make_linear(kDouble, {{"qkv", variant.heads.qkv_width()}}, 8, 0.1, variant.bias),
        make_linear(kDouble, {{"out", 8}}, variant.heads.query_width(), 0.1, variant.bias),
        norm("q_norm"), norm("k_norm"));
  }

  std::unique_ptr<Constant> table;
  test::OwnedTensor<double> table_memory;
  std::unique_ptr<SelfAttention> layer;
};

// Documents of lengths 3, 1, 3 in the first row, one of all 7 in the second.
test::OwnedTensor<std::int32_t> documents() {
  test::OwnedTensor<std::int32_t> positions({2, kLength});
  positions.values = {0, 1, 2, 0, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6};
  return positions;
}

void expect_gradients(const Variant& variant, Tensor positions = {}) {
  const Attention attention(variant);
  LayerBench bench(*attention.layer, kX);
  bench.batch.positions = positions;
  std::string where;
  EXPECT_LT(bench.worst_error(&where), kTolerance) << where;
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithBiases) {
  expect_gradients({.bias = true, .rotated = 4});
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithAPartOfEachHeadRotated) {
  for (const auto pairs : {ops::RotaryPairs::kHalves, ops::RotaryPairs::kNeighbours}) {
    expect_gradients({.rotated = 2, .pairs = pairs});
    expect_gradients({.qk_norm = true, .rotated = 4, .pairs = pairs});
  }
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithAWindow) {
  for (const std::int64_t window : {1, 3, 100}) expect_gradients({.window = window});
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithCappedScores) {
  auto positions = documents();
  expect_gradients({.softcap = 0.3});
  expect_gradients({.qk_norm = true, .rotated = 4, .window = 3, .softcap = 2}, positions);
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesWithNormedHeads) {
  expect_gradients({.qk_norm = true});
  expect_gradients({.bias = true, .qk_norm = true, .rotated = 4});
}

TEST(SelfAttention, GradientsMatchFiniteDifferencesOverPackedDocuments) {
  auto positions = documents();
  expect_gradients({.rotated = 4}, positions);
  expect_gradients({.bias = true, .qk_norm = true, .rotated = 4, .window = 2}, positions);
}

constexpr ops::HeadLayout kEvenHeads = {.num_heads = 3, .num_kv_heads = 3, .head_dim = 4};

TEST(SelfAttention, GradientsMatchFiniteDifferencesHeadByHead) {
  auto positions = documents();
  expect_gradients({.heads = kEvenHeads, .qkv_by_head = true, .bias = true, .rotated = 2});
  expect_gradients({.heads = kEvenHeads, .qkv_by_head = true, .window = 3}, positions);
}

// Where a row of the weight with all queries, all keys and all values stands head by head.
std::int64_t row_by_head(std::int64_t row) {
  const std::int64_t which = row / kEvenHeads.query_width();
  const std::int64_t head = row % kEvenHeads.query_width() / kEvenHeads.head_dim;
  return (3 * head + which) * kEvenHeads.head_dim + row % kEvenHeads.head_dim;
}

// The rows of `by_head`, a weight or a bias, in the other order.
std::vector<double> together(const Tensor& by_head) {
  const std::int64_t rows = kEvenHeads.qkv_width();
  const std::int64_t columns = by_head.num_elements() / rows;
  std::vector<double> result;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* from = by_head.data<double>() + row_by_head(row) * columns;
    result.insert(result.end(), from, from + columns);
  }
  return result;
}

TEST(SelfAttention, HeadByHeadIsTheSameFunctionOfReorderedRows) {
  const Attention by_head({.heads = kEvenHeads, .qkv_by_head = true, .bias = true, .rotated = 4});
  const Attention plain({.heads = kEvenHeads, .bias = true, .rotated = 4});
  LayerBench a(*by_head.layer, kX);
  LayerBench b(*plain.layer, kX);
  for (const std::size_t i : {0, 1}) {  // qkv's weight and bias
    const std::vector<double> rows = together(a.params[i]->value);
    std::copy(rows.begin(), rows.end(), b.params[i]->value.data<double>());
  }
  const auto expect_same = [](std::span<const double> actual, std::span<const double> expected) {
    ASSERT_EQ(actual.size(), expected.size());
    // The same few dozen products, perhaps in another order of sums.
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-13);
  };
  const auto all = [](const Tensor& tensor) {
    return std::span(tensor.data<double>(), static_cast<std::size_t>(tensor.num_elements()));
  };
  by_head.layer->forward(a.run, a.pass());
  plain.layer->forward(b.run, b.pass());
  expect_same(all(a.y), all(b.y));
  a.backward();
  b.backward();
  expect_same(all(a.dx), all(b.dx));
  for (const std::size_t i : {0, 1}) {
    expect_same(together(a.params[i]->grad), all(b.params[i]->grad));
  }
}

TEST(SelfAttention, ADocumentIsComputedAsIfAlone) {
  const Attention attention({.bias = true, .qk_norm = true, .rotated = 4});
  auto positions = documents();
  LayerBench packed(*attention.layer, kX);
  packed.batch.positions = positions;
  attention.layer->forward(packed.run, packed.pass());
  const std::vector<double> together(packed.y.data<double>(), packed.y.data<double>() + 7 * 8);

  LayerBench alone(*attention.layer, {kDouble, {1, 3, 8}});
  for (const std::int64_t begin : {0, 4}) {
    std::copy_n(packed.x.data<double>() + begin * 8, 3 * 8, alone.x.data<double>());
    attention.layer->forward(alone.run, alone.pass());
    for (std::int64_t i = 0; i < 3 * 8; ++i) {
      // The same few dozen products in another order of sums.
      EXPECT_NEAR(alone.y.data<double>()[i], together[static_cast<std::size_t>(begin * 8 + i)],
                  1e-13);
    }
  }
}

TEST(SelfAttention, WeightPassesAddUp) {
  const Attention attention({.bias = true, .qk_norm = true, .rotated = 4});
  LayerBench bench(*attention.layer, kX);
  bench.backward();
  std::vector<double> once;
  for (const Param* param : bench.params) {
    once.insert(once.end(), param->grad.data<double>(),
                param->grad.data<double>() + param->grad.num_elements());
  }
  attention.layer->backward_weight(bench.run, bench.pass());
  std::size_t at = 0;
  for (const Param* param : bench.params) {
    for (std::int64_t i = 0; i < param->grad.num_elements(); ++i, ++at) {
      EXPECT_NEAR(param->grad.data<double>()[i], 2 * once[at], 1e-12) << param->name;
    }
  }
}

TEST(SelfAttention, KeepsProjectionsTwiceOnlyUnderANorm) {
  const std::size_t plain = Attention({}).layer->plan(kX).kept.size();
  const Footprint normed = Attention({.qk_norm = true}).layer->plan(kX);
  EXPECT_EQ(plain, 3U);
  EXPECT_EQ(normed.kept.size(), 5U);
  EXPECT_EQ(normed.kept[2], normed.kept[0]);
}

}  // namespace
}  // namespace atl::nn
