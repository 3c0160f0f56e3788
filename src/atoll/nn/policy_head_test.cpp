#include "atoll/nn/policy_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kVocab = 7;

std::unique_ptr<Layer> head() {
  Param weight = {.name = "head", .spec = {Dtype::kF64, {kVocab, 4}}, .init = Init::normal(0.5)};
  return std::make_unique<LinearCrossEntropy>(std::move(weight));
}

// Tokens whose ratios are inside the bounds and far outside of them; one row has no target.
struct Drawn {
  Drawn() : targets({2, 3}), facts(kRows), outcomes(kRows) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      targets[r] = r == 2 ? kIgnoreTarget : static_cast<std::int32_t>((3 * r + 1) % kVocab);
      facts[at] = {.advantage = 0.5 * static_cast<double>(r - 2),
                   .sampled = -2.0 + 0.9 * static_cast<double>(r % 3),
                   .reference = -1.9};
    }
  }
  FindPolicyTokens find() {
    return [this](std::int64_t) { return PolicyTokens{facts, outcomes}; };
  }

  test::OwnedTensor<std::int32_t> targets;
  std::vector<ops::DrawnTokenFacts> facts;
  std::vector<ops::PolicyOutcome> outcomes;
};

// The gradient of the sum of losses in the elements of `at`, by central differences.
void expect_numeric(LayerBench& bench, const Tensor& at, const Tensor& gradient) {
  constexpr double kStep = 1e-6;
  for (std::int64_t i = 0; i < at.num_elements(); ++i) {
    double& element = at.data<double>()[i];
    const double saved = element;
    element = saved + kStep;
    const double up = bench.loss();
    element = saved - kStep;
    const double down = bench.loss();
    element = saved;
    EXPECT_NEAR(gradient.data<double>()[i], (up - down) / (2 * kStep), 1e-7) << i;
  }
}

TEST(PolicyHead, GradientsAreThoseOfFiniteDifferences) {
  Drawn drawn;
  PolicyHead layer(head(), {.clip_low = 0.2, .clip_high = 0.3, .kl = 0.1}, drawn.find());
  LayerBench bench(layer, {Dtype::kF64, {2, 3, 4}});
  bench.batch.targets = drawn.targets;
  std::fill_n(bench.r.data<double>(), kRows, 1.0);  // the gradient is that of the plain sum
  bench.loss();
  layer.backward_input(bench.run, bench.pass());
  bench.run.run.training = false;  // forward adds to the gradients in training
  expect_numeric(bench, bench.x, bench.dx);
  expect_numeric(bench, bench.params.front()->value, bench.params.front()->grad);
  const auto clipped = std::ranges::count(drawn.outcomes, true, &ops::PolicyOutcome::clipped);
  EXPECT_GT(clipped, 0);
  EXPECT_LT(clipped, kRows - 1);
}

TEST(PolicyHead, WithoutClippingIsWeightedCrossEntropy) {
  // Where the policy is the sampler's, the slope is minus the advantage.
  Drawn drawn;
  PolicyHead layer(head(), {.kl = 0}, drawn.find());
  LayerBench bench(layer, {Dtype::kF64, {2, 3, 4}});
  bench.batch.targets = drawn.targets;
  bench.loss();
  for (std::size_t r = 0; r < drawn.facts.size(); ++r) {
    drawn.facts[r].sampled = drawn.outcomes[r].logprob;
  }
  bench.loss();
  for (std::size_t r = 0; r < drawn.facts.size(); ++r) {
    if (r == 2) continue;
    EXPECT_EQ(drawn.outcomes[r].ratio, 1);
    EXPECT_EQ(drawn.outcomes[r].slope, -drawn.facts[r].advantage);
  }
}

}  // namespace
}  // namespace atl::nn
