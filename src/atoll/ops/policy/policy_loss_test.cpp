#include "atoll/ops/policy/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "atoll/ops/testing.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kVocab = 5;
constexpr PolicyLoss kLoss = {.clip_low = 0.2, .clip_high = 0.28, .kl = 0.05};

// What tests/oracle/policy_loss.py prints: torch in double.
constexpr double kLosses[kRows] = {-1.4975070596211999,  0.52657208584191106,
                                   -1.2797414540962175,  1.6487212707001282,
                                   -0.40809272476873792, 0.0017012708343870698};
constexpr double kGradients[kRows][kVocab] = {
    {0.082605102884976273, -1.3426179361990138, 0.37021038675374951, 0.78373539490787247,
     0.10606705165241541},
    {-0.10099978478844347, -0.21381654607501141, -0.028936922823735913, 0.4734395444355442,
     -0.12968629074835333},
    {-0.0047043873997854946, 0.0011731535621674731, 0.0024835661105977588, 0.00033611412301460018,
     0.00071155360400566316},
    {-0.78121575386557585, -0.10572605531830161, 1.4248992098348912, -0.47383130656999001,
     -0.064126094081023849},
    {0.074635471255745725, 0.1580032938883085, 0.021383420530691984, 0.045268701618710737,
     -0.29929088729345699},
    {0.001496564857364473, -0.01103304300648454, 0.0067071383643024047, 0.00090771247024001682,
     0.0019216273145776478}};

// The rows of the oracle.
template <typename T>
struct Rows {
  Rows() : logits({kRows, kVocab}), targets({kRows}), loss({kRows}), outcomes(kRows) {
    constexpr double kAdvantages[kRows] = {1.5, -0.5, 1.0, -1.0, 0.75, 0.0};
    constexpr double kMoved[kRows] = {0.0, 0.05, 0.5, 0.5, -0.6, 0.1};
    constexpr double kApart[kRows] = {0.3, -0.2, 0.1, 0.0, -0.4, 0.25};
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      double sum = 0;
      for (std::int64_t v = 0; v < kVocab; ++v) {
        const double logit = static_cast<double>((7 * r + 3 * v) % 11) / 4 - 1;
        logits[r * kVocab + v] = static_cast<T>(logit);
        sum += std::exp(logit);
      }
      targets[r] = static_cast<std::int32_t>((2 * r + 1) % kVocab);
      const double logprob = static_cast<double>(logits[r * kVocab + targets[r]]) - std::log(sum);
      facts.push_back({.advantage = kAdvantages[at],
                       .sampled = logprob - kMoved[at],
                       .reference = logprob + kApart[at]});
    }
  }

  void run(bool gradient = true, double loss_scale = 1) {
    test::TestRun bench;
    bench.run.loss_scale = loss_scale;
    policy_loss_of_logits(bench, kLoss, logits, targets, facts, outcomes, loss, gradient);
  }

  test::OwnedTensor<T> logits;
  test::OwnedTensor<std::int32_t> targets;
  test::OwnedTensor<T> loss;
  std::vector<DrawnTokenFacts> facts;
  std::vector<PolicyOutcome> outcomes;
};

template <typename T>
void expect_the_oracle(double tolerance) {
  Rows<T> rows;
  rows.run();
  for (std::int64_t r = 0; r < kRows; ++r) {
    EXPECT_NEAR(static_cast<double>(rows.loss[r]), kLosses[r], tolerance) << r;
    for (std::int64_t v = 0; v < kVocab; ++v) {
      EXPECT_NEAR(static_cast<double>(rows.logits[r * kVocab + v]), kGradients[r][v], tolerance)
          << r << " " << v;
    }
  }
  const std::vector<bool> clipped = {false, false, true, false, false, false};
  for (std::size_t r = 0; r < clipped.size(); ++r) {
    EXPECT_EQ(rows.outcomes[r].clipped, clipped[r]) << r;
  }
}

TEST(PolicyLoss, IsThatOfTorch) {
  expect_the_oracle<double>(1e-14);
  expect_the_oracle<float>(4e-7);  // f32 logits: a few units in the last place of gradients near 1
}

TEST(PolicyLoss, GradientIsThatOfFiniteDifferences) {
  constexpr double kStep = 1e-6;
  Rows<double> analytic;
  analytic.run(/*gradient=*/true, /*loss_scale=*/0.25);
  for (std::int64_t i = 0; i < kRows * kVocab; ++i) {
    double losses[2] = {};
    for (const int side : {0, 1}) {
      Rows<double> moved;
      moved.logits[i] += side == 0 ? -kStep : kStep;
      moved.run(/*gradient=*/false);
      for (std::int64_t r = 0; r < kRows; ++r) losses[side] += moved.loss[r];
    }
    const double numeric = 0.25 * (losses[1] - losses[0]) / (2 * kStep);
    EXPECT_NEAR(analytic.logits[i], numeric, 1e-8) << i;
  }
}

TEST(PolicyLoss, LeavesRowsWithoutTargetAlone) {
  Rows<float> rows;
  rows.targets[2] = kIgnoreTarget;
  rows.run();
  EXPECT_EQ(rows.loss[2], 0);
  for (std::int64_t v = 0; v < kVocab; ++v) EXPECT_EQ(rows.logits[2 * kVocab + v], 0);
}

TEST(PolicyLoss, EntropyIsThatOfTheDistribution) {
  Rows<double> rows;
  for (std::int64_t v = 0; v < kVocab; ++v) rows.logits[v] = 3;
  rows.run();
  EXPECT_NEAR(rows.outcomes[0].entropy, std::log(5.0), 1e-14);
  EXPECT_LT(rows.outcomes[1].entropy, std::log(5.0));
}

TEST(PolicyLoss, LogProbabilityIsTheSamplers) {
  Rows<float> rows;
  std::vector<double> expected;
  for (std::int64_t r = 0; r < kRows; ++r) {
    expected.push_back(
        log_softmax_at(rows.logits.values.data() + r * kVocab, kVocab, rows.targets[r]));
  }
  rows.run();
  for (std::size_t r = 0; r < expected.size(); ++r) {
    EXPECT_EQ(rows.outcomes[r].logprob, expected[r]);
  }
}

}  // namespace
}  // namespace atl::ops
