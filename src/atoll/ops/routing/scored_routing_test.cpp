#include "atoll/ops/routing/scored_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kTokens = 40, kExperts = 8, kTopK = 3;

// DeepSeek V2's form, V3's, and each without what makes it special.
const RouterForm kForms[] = {
    {.normalize = false, .scale = 4, .num_groups = 4, .top_groups = 2},
    {.normalize = true, .scale = 2.5, .num_groups = 4, .top_groups = 2},
    {.normalize = true,
     .sigmoid = true,
     .scale = 2.5,
     .num_groups = 4,
     .top_groups = 2,
     .best_of_group = 2},
    {.normalize = false, .sigmoid = true, .num_groups = 2, .top_groups = 1, .best_of_group = 2},
};

template <typename T>
struct Routed {
  Routed(std::int64_t tokens, std::uint64_t seed, const RouterForm& router_form)
      : form(router_form),
        logits(random_tensor<T>({tokens, kExperts}, seed, 2.0F)),
        experts({tokens, kTopK}),
        weights({tokens, kTopK}) {}

  void route(TestRun& run, Tensor correction = {}) {
    route_scored_tokens(run, form, logits, correction, experts, weights);
  }

  RouterForm form;
  OwnedTensor<T> logits;
  OwnedTensor<std::int32_t> experts;
  OwnedTensor<T> weights;
};

double score(const RouterForm& form, const double* logits, std::int64_t e) {
  if (form.sigmoid) return 1 / (1 + std::exp(-logits[e]));
  double sum = 0;
  for (std::int64_t i = 0; i < kExperts; ++i) sum += std::exp(logits[i]);
  return std::exp(logits[e]) / sum;
}

// Every set of kTopK experts that lies in top_groups groups is looked at: the one that the
// definition takes has the best groups, and in them the best experts.
TEST(RouteScoredTokens, TakesTheBestOfTheBestGroups) {
  TestRun run;
  auto correction = random_tensor<double>({kExperts}, 9, 0.3F);
  for (const RouterForm& form : kForms) {
    Routed<double> routed(kTokens, 1, form);
    routed.route(run, correction);
    const std::int64_t size = kExperts / form.num_groups;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const double* logits = &routed.logits.values[static_cast<std::size_t>(t * kExperts)];
      std::vector<double> choice, groups;
      for (std::int64_t e = 0; e < kExperts; ++e) {
        choice.push_back(score(form, logits, e) + correction[e]);
      }
      for (std::int64_t g = 0; g < form.num_groups; ++g) {
        std::vector<double> own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
        std::sort(own.rbegin(), own.rend());
        groups.push_back(own[0] + (form.best_of_group == 2 ? own[1] : 0));
      }
      const auto better_groups = [&](std::int64_t g) {
        return std::count_if(groups.begin(), groups.end(), [&](double other) {
          return other > groups[static_cast<std::size_t>(g)];
        });
      };
      const auto is_open = [&](std::int64_t e) {
        return better_groups(e / size) < form.top_groups;
      };
      double sum = 0;
      for (std::int64_t j = 0; j < kTopK; ++j) {
        const std::int64_t e = routed.experts[t * kTopK + j];
        std::int64_t better = 0;
        for (std::int64_t other = 0; other < kExperts; ++other) {
          better += is_open(other) &&
                    choice[static_cast<std::size_t>(other)] > choice[static_cast<std::size_t>(e)];
        }
        EXPECT_TRUE(is_open(e) && better == j) << e << " is no. " << better;
        sum += score(form, logits, e);
      }
      for (std::int64_t j = 0; j < kTopK; ++j) {
        const double wanted = form.scale * score(form, logits, routed.experts[t * kTopK + j]) /
                              (form.normalize ? sum : 1);
        EXPECT_NEAR(routed.weights[t * kTopK + j], wanted, 1e-14);
      }
    }
  }
}

TEST(RouteScoredTokens, APlainFormIsRouteTokens) {
  TestRun run;
  for (const bool normalize : {true, false}) {
    Routed<double> routed(kTokens, 2, {.normalize = normalize});
    routed.route(run);
    OwnedTensor<std::int32_t> experts(routed.experts.shape);
    OwnedTensor<double> weights(routed.weights.shape);
    route_tokens(run, normalize, routed.logits, experts, weights);
    EXPECT_EQ(routed.experts, experts);
    EXPECT_LE(test::max_abs_difference(routed.weights, weights), 1e-14);
  }
}

// sum of r * weights, and of both losses.
double objective(TestRun& run, Routed<double>& routed, const OwnedTensor<double>& r,
                 const RouterLosses& losses, const OwnedTensor<double>& choices) {
  routed.route(run);
  double sum = test::dot(routed.weights, r);
  const std::int64_t tokens = routed.logits.shape.dim(0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double* logits = &routed.logits.values[static_cast<std::size_t>(t * kExperts)];
    double exponentials = 0;
    double scores = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      exponentials += std::exp(logits[e]);
      scores += score(routed.form, logits, e);
    }
    sum += losses.z * std::log(exponentials) * std::log(exponentials);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      sum += losses.balance * kExperts * choices[e] / static_cast<double>(tokens) *
             score(routed.form, logits, e) / scores;
    }
  }
  return sum;
}

TEST(RouteScoredTokens, GradientsMatchFiniteDifferences) {
  TestRun run;
  for (const RouterForm& form : kForms) {
    for (const RouterLosses& losses :
         {RouterLosses{}, RouterLosses{.balance = 0.7}, RouterLosses{.z = 0.3}}) {
      Routed<double> routed(12, 3, form);
      auto r = random_tensor<double>({12, kTopK}, 4);
      routed.route(run);
      OwnedTensor<double> choices({kExperts}), dlogits(routed.logits.shape);
      for (const std::int32_t e : routed.experts.values) choices[e] += 1;
      route_scored_tokens_backward(run, form, losses, routed.logits, routed.experts, routed.weights,
                                   r, dlogits);
      const auto numeric = test::finite_difference(
          routed.logits, [&] { return objective(run, routed, r, losses, choices); });
      EXPECT_LE(test::max_relative_error(dlogits, numeric), 1e-8)
          << form.sigmoid << form.normalize << " " << losses.balance << " " << losses.z;
    }
  }
}

TEST(RouteScoredTokens, NanChoosesEachExpertOnce) {
  TestRun run;
  for (const RouterForm& form : kForms) {
    Routed<float> routed(1, 5, form);
    routed.logits[2] = std::nanf("");
    routed.route(run);
    auto chosen = routed.experts.values;
    std::sort(chosen.begin(), chosen.end());
    EXPECT_EQ(std::unique(chosen.begin(), chosen.end()), chosen.end());
    EXPECT_TRUE(chosen.front() >= 0 && chosen.back() < kExperts);
  }
}

TEST(RouteScoredTokens, ACorrectionOfBf16IsWidened) {
  TestRun run;
  auto narrow = random_tensor<Bf16>({kExperts}, 6);
  auto wide = narrow.as<float>();
  Routed<float> by_narrow(kTokens, 7, kForms[2]), by_wide(kTokens, 7, kForms[2]);
  by_narrow.route(run, narrow);
  by_wide.route(run, wide);
  EXPECT_EQ(by_narrow.experts, by_wide.experts);
  EXPECT_EQ(by_narrow.weights, by_wide.weights);
}

TEST(RouteScoredTokens, NoNumberOfThreadsChangesABit) {
  std::vector<OwnedTensor<float>> all;
  for (const int threads : {1, 2, 5}) {
    TestRun run(threads);
    Routed<float> routed(1000, 8, kForms[2]);
    auto dweights = random_tensor<float>({1000, kTopK}, 9);
    OwnedTensor<float> dlogits(routed.logits.shape);
    routed.route(run);
    route_scored_tokens_backward(run, routed.form, {.balance = 0.1, .z = 0.2}, routed.logits,
                                 routed.experts, routed.weights, dweights, dlogits);
    all.push_back(dlogits);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(ScoredRouterSums, CountChoicesAndAddUpLosses) {
  TestRun run;
  Routed<float> routed(10, 1, kForms[2]);
  // Even scores: the balance loss of a token is then top_k, whatever was chosen.
  std::fill(routed.logits.values.begin(), routed.logits.values.end(), 0.5F);
  routed.route(run);
  OwnedTensor<std::int32_t> places(routed.experts.shape, 1);
  places[4] = -1;
  OwnedTensor<double> sums({kExperts + 4}, 1.0);
  add_scored_router_sums(run, routed.form, routed.logits, routed.experts, places, sums);
  for (std::int64_t e = 0; e < kExperts; ++e) EXPECT_EQ(sums[e], e < kTopK ? 11 : 1);
  EXPECT_EQ(sums[kExperts], 11);
  EXPECT_EQ(sums[kExperts + 1], 2);
  EXPECT_NEAR(sums[kExperts + 2], 1 + 10.0 * kTopK, 1e-5);
  const double log_sum = 0.5 + std::log(8.0);
  EXPECT_NEAR(sums[kExperts + 3], 1 + 10 * log_sum * log_sum, 1e-4);
}

}  // namespace
}  // namespace atl::ops
