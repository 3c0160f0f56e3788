#include "atoll/parallel/schedule/stage_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "atoll/nn/models/family.h"

namespace atl::parallel {
namespace {

using testing::ElementsAre;

double most_costly(std::span<const double> costs, const std::vector<std::size_t>& bounds) {
  double most = 0;
  for (std::size_t c = 0; c + 1 < bounds.size(); ++c) {
    double sum = 0;
    for (std::size_t i = bounds[c]; i < bounds[c + 1]; ++i) sum += costs[i];
    most = std::max(most, sum);
  }
  return most;
}

// All cuts, one after the other.
double least_of_all_cuts(std::span<const double> costs, std::size_t chunks) {
  std::vector<bool> is_cut(costs.size() - 1, false);
  std::fill(is_cut.end() - static_cast<std::ptrdiff_t>(chunks - 1), is_cut.end(), true);
  double least = std::numeric_limits<double>::infinity();
  do {
    std::vector<std::size_t> bounds = {0};
    for (std::size_t i = 0; i < is_cut.size(); ++i) {
      if (is_cut[i]) bounds.push_back(i + 1);
    }
    bounds.push_back(costs.size());
    least = std::min(least, most_costly(costs, bounds));
  } while (std::next_permutation(is_cut.begin(), is_cut.end()));
  return least;
}

TEST(BalancedBounds, AreEvenWhereStagesAre) {
  EXPECT_THAT(balanced_bounds(std::vector<double>{1, 1, 1, 1, 1, 1}, 3), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(balanced_bounds(std::vector<double>{5}, 1), ElementsAre(0, 1));
  const std::vector<double> ten(10, 1);
  std::vector<std::size_t> sizes = balanced_bounds(ten, 4);
  std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
  std::sort(sizes.begin() + 1, sizes.end());
  EXPECT_THAT(sizes, ElementsAre(0, 2, 2, 3, 3));  // not 1, 3, 3, 3
}

TEST(BalancedBounds, GiveACostlyHeadFewerBlocks) {
  EXPECT_THAT(balanced_bounds(std::vector<double>{0, 1, 1, 1, 1, 1, 0, 3}, 2),
              ElementsAre(0, 5, 8));
  EXPECT_THAT(balanced_bounds(std::vector<double>{0, 0, 0, 9}, 4), ElementsAre(0, 1, 2, 3, 4));
}

RC_GTEST_PROP(BalancedBounds, AreTheBestOfAllCuts, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  const auto chunks = *rc::gen::inRange<std::size_t>(1, count + 1);
  std::vector<double> costs;
  for (std::size_t i = 0; i < count; ++i) costs.push_back(*rc::gen::inRange(0, 20));
  const std::vector<std::size_t> bounds = balanced_bounds(costs, chunks);
  RC_ASSERT(bounds.size() == chunks + 1 && bounds.front() == 0 && bounds.back() == count);
  RC_ASSERT(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) ==
            bounds.end());
  RC_ASSERT(most_costly(costs, bounds) == least_of_all_cuts(costs, chunks));
}

nn::ModelConfig model_of(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 300;
  config.hidden_size = 12;
  config.num_layers = 3;
  config.heads = {.num_heads = 3, .num_kv_heads = family == "gpt2" ? 3 : 1, .head_dim = 4};
  config.intermediate_size = 20;
  config.max_positions = 64;
  config.activation = family == "gpt2" ? "gelu_new" : "silu";
  return config;
}

// Together they are the formula of MFU, but for elementwise work: a head of its own has a table of
// lookups, which the formula counts as products.
TEST(StageCosts, AddUpToTheFlopsOfAToken) {
  for (const char* family : {"llama", "gpt2"}) {
    SCOPED_TRACE(family);
    const nn::ModelConfig config = model_of(family);
    const auto model = nn::build_model(config, {});
    double sum = 0;
    for (const PassCosts& cost : stage_costs(*model, 32)) {
      sum += cost.forward + cost.input + cost.weight;
    }
    const double lookups = 6.0 * 300 * 12;
    const double formula = nn::flops_per_token(*model, 32) - lookups;
    EXPECT_NEAR(sum, formula, 0.05 * formula);
  }
}

TEST(StageCosts, RecomputeCountsToB) {
  const auto plain = nn::build_model(model_of("llama"), {});
  const auto some =
      nn::build_model(model_of("llama"), {.recompute = nn::RecomputeMode::kSelective});
  const auto full = nn::build_model(model_of("llama"), {.recompute = nn::RecomputeMode::kFull});
  const PassCosts block = stage_costs(*plain, 32)[1];
  EXPECT_EQ(stage_costs(*full, 32)[1].input, block.input + block.forward);
  EXPECT_EQ(stage_costs(*some, 32)[1].input, block.input + 2 * 3 * 12 * 20);
}

}  // namespace
}  // namespace atl::parallel
