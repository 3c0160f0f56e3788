#include "atoll/nn/adapters/expert_adapter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "atoll/nn/mixture_of_experts.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/recompute.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

using ::testing::ElementsAre;

constexpr Dtype kDouble = Dtype::kF64;
constexpr std::int64_t kExperts = 3, kTopK = 2, kWidth = 6, kHidden = 4, kRank = 2;
const Spec kX = {kDouble, {2, 5, kWidth}};

Param param(const char* name, std::int64_t rows, std::int64_t columns) {
  return make_param(name, {kDouble, {rows, columns}}, Init::normal(0.1), true);
}

std::vector<std::int64_t> all_of(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

// Experts whose products are frozen and adapted, as they are in training.
std::unique_ptr<MixtureOfExperts> adapted(ExpertLoad& load, double swiglu_limit = 0) {
  Param gate_up = param("gate_up", kExperts * 2 * kHidden, kWidth);
  Param down = param("down", kExperts * kWidth, kHidden);
  gate_up.frozen = down.frozen = true;
  MixtureOfExperts::Biases biases;
  if (swiglu_limit > 0) {
    const auto bias = [](const char* name, std::int64_t size) {
      return make_param(name, {kDouble, {size}}, Init::zero(), false);
    };
    biases = {bias("router bias", kExperts), bias("gate_up bias", kExperts * 2 * kHidden),
              bias("down bias", kExperts * kWidth)};
  }
  auto experts = std::make_unique<MixtureOfExperts>(
      MixtureOfExperts::Options{
          .num_experts = kExperts, .top_k = kTopK, .swiglu_limit = swiglu_limit},
      param("router", kExperts, kWidth), std::move(gate_up), std::move(down), &load, nullptr,
      std::move(biases));
  // Columns of gate and up that alternate, as gpt-oss's files have them.
  experts->adapt_gate_up({param("gate_up A", kExperts * kRank, kWidth),
                          param("gate_up B", kExperts * kRank, 2 * kHidden),
                          kExperts,
                          0.7,
                          {all_of(kWidth), {0, 2, 4, 6, 1, 3, 5, 7}}});
  experts->adapt_down({param("down A", kExperts * kRank, kHidden),
                       param("down B", kExperts * kRank, kWidth),
                       kExperts,
                       0.3,
                       {all_of(kHidden), all_of(kWidth)}});
  return experts;
}

TEST(ExpertAdapter, GradientsMatchFiniteDifferences) {
  for (const double limit : {0.0, 7.0}) {
    ExpertLoad load(0, kExperts);
    const auto experts = adapted(load, limit);
    LayerBench bench(*experts, kX);
    std::string where;
    EXPECT_LT(bench.worst_error(&where), 1e-7) << where << " at a limit of " << limit;
  }
}

TEST(ExpertAdapter, GradientsMatchFiniteDifferencesWhenMadeAgain) {
  ExpertLoad load(0, kExperts);
  Recompute recompute(adapted(load));
  LayerBench bench(recompute, kX);
  std::string where;
  EXPECT_LT(bench.worst_error(&where), 1e-7) << where;
}

// y of experts whose weights are W + s B A.
TEST(ExpertAdapter, IsTheExpertsWithMergedWeights) {
  ExpertLoad load(0, kExperts);
  const auto experts = adapted(load);
  LayerBench bench(*experts, kX);
  experts->forward(bench.run, bench.pass());
  const std::vector<double> y(bench.y.data<double>(),
                              bench.y.data<double>() + bench.y.num_elements());
  // The router, gate_up, down, and the factors A and B of each.
  const auto merge = [&](std::size_t at, std::size_t factors, double scale, std::int64_t rows,
                         std::int64_t in, bool alternate) {
    double* w = bench.params[at]->value.data<double>();
    const double* a = bench.params[factors]->value.data<double>();
    const double* b = bench.params[factors + 1]->value.data<double>();
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t half = rows / 2;
        const std::int64_t column = alternate ? 2 * (row % half) + row / half : row;
        for (std::int64_t i = 0; i < in; ++i) {
          for (std::int64_t j = 0; j < kRank; ++j) {
            w[(e * rows + row) * in + i] +=
                scale * b[(j * kExperts + e) * rows + column] * a[(e * kRank + j) * in + i];
          }
        }
      }
    }
    std::fill_n(bench.params[factors + 1]->value.data<double>(), kExperts * kRank * rows, 0.0);
  };
  merge(1, 3, 0.7, 2 * kHidden, kWidth, true);
  merge(2, 5, 0.3, kWidth, kHidden, false);
  experts->forward(bench.run, bench.pass());
  for (std::int64_t i = 0; i < bench.y.num_elements(); ++i) {
    EXPECT_NEAR(bench.y.data<double>()[i], y[static_cast<std::size_t>(i)], 1e-12) << i;
  }
}

TEST(ExpertAdapter, RowsOfAStackAreInTheOrderOfItsFile) {
  // Gate and up of two experts, of three rows each.
  Param plain = param("gate_up", 2 * 6, kWidth);
  plain.files.clear();
  for (std::int64_t i = 0; i < 4; ++i) {
    const char* part = i % 2 == 0 ? "gate_proj" : "up_proj";
    plain.files.push_back({fmt::format("mlp.experts.{}.{}.weight", i / 2, part), 3 * i, 3, false});
  }
  EXPECT_THAT(rows_in_stack(plain, 2), ElementsAre(0, 1, 2, 3, 4, 5));
  const Slice first = {{{0, 2}, {3, 2}, {6, 2}, {9, 2}}, 0, kWidth};
  const Slice second = {{{2, 1}, {5, 1}, {8, 1}, {11, 1}}, 0, kWidth};
  EXPECT_THAT(rows_in_stack(cut_param(plain, {first, second}, 1), 2), ElementsAre(2, 5));
  plain.files.front().name = "mlp.experts.0.gate_up_proj.gate.weight";
  EXPECT_THAT(rows_in_stack(plain, 2), ElementsAre(0, 2, 4, 1, 3, 5));
}

}  // namespace
}  // namespace atl::nn
