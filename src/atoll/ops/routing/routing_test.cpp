#include "atoll/ops/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kTokens = 300, kExperts = 7, kTopK = 3;

template <typename T>
struct Routed {
  explicit Routed(OwnedTensor<T> the_logits, bool normalize_weights = false,
                  std::int64_t top_k = kTopK)
      : logits(std::move(the_logits)),
        normalize(normalize_weights),
        experts({logits.shape.dim(0), top_k}),
        weights({logits.shape.dim(0), top_k}) {}

  void route(TestRun& run) { route_tokens(run, normalize, logits, experts, weights); }

  OwnedTensor<T> logits;
  bool normalize;
  OwnedTensor<std::int32_t> experts;
  OwnedTensor<T> weights;
};

TEST(RouteTokens, TakesTheMostProbableAndTheirProbabilities) {
  TestRun run;
  for (const bool normalize : {false, true}) {
    Routed<float> routed(random_tensor<float>({kTokens, kExperts}, 1, 4.0F), normalize);
    routed.route(run);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      std::vector<std::int64_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      const auto logit = [&](std::int64_t e) { return double{routed.logits[t * kExperts + e]}; };
      std::stable_sort(order.begin(), order.end(),
                       [&](auto a, auto b) { return logit(a) > logit(b); });
      double sum = 0;
      for (std::int64_t j = 0; j < (normalize ? kTopK : kExperts); ++j) {
        sum += std::exp(logit(order[static_cast<std::size_t>(j)]));
      }
      for (std::int64_t j = 0; j < kTopK; ++j) {
        const std::int64_t e = order[static_cast<std::size_t>(j)];
        EXPECT_EQ(routed.experts[t * kTopK + j], e);
        EXPECT_NEAR(routed.weights[t * kTopK + j], std::exp(logit(e)) / sum, 1e-6);
      }
    }
  }
}

TEST(RouteTokens, OfEqualLogitsTheLowerNumberWins) {
  TestRun run;
  Routed<float> routed(OwnedTensor<float>({1, kExperts}, 2.0F), true);
  routed.logits[4] = 3;
  routed.route(run);
  EXPECT_EQ(routed.experts.values, (std::vector<std::int32_t>{4, 0, 1}));
}

TEST(RouteTokens, HugeLogitsOverflowNothingAndNanChoosesEachOnce) {
  TestRun run;
  Routed<float> routed(OwnedTensor<float>({2, kExperts}, -3e38F), true);
  routed.logits[1] = 3e38F;
  routed.logits[kExperts + 2] = std::nanf("");
  routed.route(run);
  EXPECT_EQ(routed.weights[0], 1);
  EXPECT_EQ(routed.weights[1], 0);
  std::vector<std::int32_t> chosen(routed.experts.values.begin() + kTopK,
                                   routed.experts.values.end());
  std::sort(chosen.begin(), chosen.end());
  EXPECT_EQ(std::unique(chosen.begin(), chosen.end()), chosen.end());
  EXPECT_GE(chosen.front(), 0);
}

// sum of r * weights, and of both losses, as a function of the logits.
double objective(TestRun& run, Routed<double>& routed, const OwnedTensor<double>& r,
                 const RouterLosses& losses, const OwnedTensor<double>& choices) {
  const std::int64_t tokens = routed.logits.shape.dim(0);
  routed.route(run);
  double sum = test::dot(routed.weights, r);
  for (std::int64_t t = 0; t < tokens; ++t) {
    double total = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) total += std::exp(routed.logits[t * kExperts + e]);
    sum += losses.z * std::log(total) * std::log(total);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      sum += losses.balance * kExperts * choices[e] / static_cast<double>(tokens) *
             std::exp(routed.logits[t * kExperts + e]) / total;
    }
  }
  return sum;
}

TEST(RouteTokens, GradientsMatchFiniteDifferences) {
  TestRun run;
  for (const bool normalize : {false, true}) {
    for (const RouterLosses& losses :
         {RouterLosses{}, RouterLosses{.balance = 0.7}, RouterLosses{.z = 0.3}}) {
      Routed<double> routed(random_tensor<double>({12, kExperts}, 3, 2.0F), normalize);
      const auto r = random_tensor<double>({12, kTopK}, 4);
      routed.route(run);
      OwnedTensor<double> choices({kExperts}), dlogits(routed.logits.shape);
      for (const std::int32_t e : routed.experts.values) choices[e] += 1;
      auto dweights = r;
      route_tokens_backward(run, normalize, losses, routed.logits, routed.experts, routed.weights,
                            dweights, dlogits);
      const auto numeric = test::finite_difference(
          routed.logits, [&] { return objective(run, routed, r, losses, choices); });
      EXPECT_LE(test::max_relative_error(dlogits, numeric), 1e-8)
          << normalize << " " << losses.balance << " " << losses.z;
    }
  }
}

TEST(RouteTokens, F32MatchesDouble) {
  TestRun run;
  const auto logits = random_tensor<float>({kTokens, kExperts}, 5, 4.0F);
  Routed<float> narrow(logits);
  Routed<double> wide(logits.as<double>());
  narrow.route(run);
  wide.route(run);
  EXPECT_EQ(narrow.experts, wide.experts);
  // Two exponentials of arguments below 8, each off by 8 eps, and a sum of seven terms.
  EXPECT_LE(test::max_abs_difference(narrow.weights, wide.weights), 30 * 0x1p-24);
}

TEST(RouteTokens, NoNumberOfThreadsChangesABit) {
  std::vector<OwnedTensor<float>> all;
  for (const int threads : {1, 2, 5}) {
    TestRun run(threads);
    Routed<float> routed(random_tensor<float>({1000, kExperts}, 6, 3.0F));
    auto dweights = random_tensor<float>({1000, kTopK}, 7);
    OwnedTensor<float> dlogits(routed.logits.shape);
    routed.route(run);
    route_tokens_backward(run, false, {.balance = 0.1, .z = 0.2}, routed.logits, routed.experts,
                          routed.weights, dweights, dlogits);
    all.push_back(dlogits);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(RouterSums, CountChoicesAndAddUpLosses) {
  TestRun run;
  // Even probabilities: the balance loss of a token is then top_k, whatever was chosen.
  Routed<float> routed(OwnedTensor<float>({10, kExperts}, 0.5F));
  routed.route(run);
  OwnedTensor<std::int32_t> places(routed.experts.shape, 1);
  places[4] = places[7] = -1;
  OwnedTensor<double> sums({kExperts + 4}, 1.0);
  add_router_sums(run, routed.logits, routed.experts, places, sums);
  for (std::int64_t e = 0; e < kExperts; ++e) EXPECT_EQ(sums[e], e < kTopK ? 11 : 1);
  EXPECT_EQ(sums[kExperts], 11);
  EXPECT_EQ(sums[kExperts + 1], 3);
  EXPECT_NEAR(sums[kExperts + 2], 1 + 10.0 * kTopK, 1e-5);
  const double log_sum = 0.5 + std::log(7.0);
  EXPECT_NEAR(sums[kExperts + 3], 1 + 10 * log_sum * log_sum, 1e-5);
}

}  // namespace
}  // namespace atl::ops
