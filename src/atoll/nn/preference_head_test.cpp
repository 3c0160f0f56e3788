#include "atoll/nn/preference_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <vector>

#include "atoll/ops/testing.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {
namespace {

constexpr std::int64_t kBatch = 4, kLength = 6, kWidth = 3, kVocab = 7;
// Rows 0 to 3: where their answers begin, and where they end.
constexpr std::int64_t kAnswers[][2] = {{1, 4}, {1, 6}, {2, 3}, {0, 5}};

// A head of random values in double, and one micro-batch of two pairs.
class HeadBench {
 public:
  explicit HeadBench(const PreferenceOptions& options,
                     const std::function<SampleFacts(std::int64_t)>& facts)
      : run(2) {
    source->of = facts;
    Param weight = {.name = "head", .spec = {Dtype::kF64, {kVocab, kWidth}}};
    weight.value = make({Dtype::kF64, {kVocab, kWidth}}, 11);
    weight.grad = make(weight.spec, 0);
    weight_ = weight.value;
    dweight_ = weight.grad;
    auto inner = std::make_unique<LinearCrossEntropy>(std::move(weight));
    head = std::make_unique<PreferenceHead>(std::move(inner), options, nullptr, source);
    x = make({Dtype::kF64, {kBatch, kLength, kWidth}}, 12);
    footprint = head->plan(x.spec());
    y = make(footprint.y, 0);
    kept = {make(footprint.kept[0], 0)};
    tokens.resize(static_cast<std::size_t>(kBatch * kLength));
    targets.assign(tokens.size(), kIgnoreTarget);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t t = kAnswers[b][0]; t < kAnswers[b][1]; ++t) {
        targets[static_cast<std::size_t>(b * kLength + t)] =
            static_cast<std::int32_t>((3 * b + 2 * t) % kVocab);
      }
    }
    const Spec ids = {Dtype::kI32, {kBatch, kLength}};
    batch = {.tokens = {tokens.data(), ids}, .targets = {targets.data(), ids}, .first_sample = 40};
  }

  PreferenceSums forward(bool training) {
    run.run.training = training;
    run.run.loss_scale = 1.0 / (kBatch * kLength);
    head->forward(run, {.x = x, .y = y, .kept = kept, .batch = &batch});
    return sums_of_pairs(y);
  }

  // The largest difference of a gradient from central differences of the mean loss.
  double worst_error() {
    forward(true);
    const double worst = std::max(check(x, kept[0]), check(weight_, dweight_));
    return worst;
  }

  test::TestRun run;
  std::shared_ptr<PreferenceSource> source = std::make_shared<PreferenceSource>();
  std::unique_ptr<PreferenceHead> head;
  Footprint footprint;
  Tensor x, y;
  std::vector<Tensor> kept;
  std::vector<std::int32_t> tokens, targets;
  Batch batch;

 private:
  Tensor make(Spec spec, std::uint64_t seed) {
    memory_.push_back(seed == 0 ? test::OwnedTensor<double>(spec.shape)
                                : test::random_tensor<double>(spec.shape, seed));
    return {memory_.back().values.data(), spec};
  }
  double check(const Tensor& at, const Tensor& gradient) {
    constexpr double kStep = 1e-5;
    double worst = 0;
    const std::vector<double> analytic(gradient.data<double>(),
                                       gradient.data<double>() + gradient.num_elements());
    for (std::int64_t i = 0; i < at.num_elements(); ++i) {
      double& element = at.data<double>()[i];
      const double saved = element;
      element = saved + kStep;
      const double up = forward(false).loss / 2;
      element = saved - kStep;
      const double down = forward(false).loss / 2;
      element = saved;
      const double numeric = (up - down) / (2 * kStep);
      worst = std::max(worst, std::abs(numeric - analytic[static_cast<std::size_t>(i)]));
    }
    return worst;
  }

  std::deque<test::OwnedTensor<double>> memory_;
  Tensor weight_, dweight_;
};

SampleFacts some_facts(std::int64_t sample) {
  return {.reference = -3.0 - 1.5 * static_cast<double>(sample % 3), .is_desirable = sample == 40};
}

class PreferenceHeadKinds : public ::testing::TestWithParam<PreferenceOptions> {};

// Differences have an error of step^2 and of eps / step, some 1e-10 each, of gradients near 1.
TEST_P(PreferenceHeadKinds, GradientsMatchFiniteDifferences) {
  HeadBench bench(GetParam(), some_facts);
  EXPECT_LT(bench.worst_error(), 1e-8);
  EXPECT_NE(bench.forward(false).loss, 0);
}

constexpr PreferenceOptions kSmoothed = {.beta = 0.4, .label_smoothing = 0.2};
constexpr PreferenceOptions kRobust = {
    .kind = PreferenceKind::kRobust, .beta = 0.4, .label_smoothing = 0.1};
constexpr PreferenceOptions kIpo = {.kind = PreferenceKind::kIpo, .beta = 0.4};
constexpr PreferenceOptions kHinge = {.kind = PreferenceKind::kHinge, .beta = 0.2};
constexpr PreferenceOptions kOrpo = {.kind = PreferenceKind::kOrpo, .beta = 0.7};

INSTANTIATE_TEST_SUITE_P(All, PreferenceHeadKinds,
                         ::testing::Values(PreferenceOptions(), kSmoothed, kRobust, kIpo, kHinge,
                                           kOrpo),
                         [](const auto& info) { return "kind" + std::to_string(info.index); });

// The term that answers are compared with is a number: no gradient goes through it. References
// above the unrelated answers' log-probabilities hold it at 0, where differences see the same.
TEST(PreferenceHead, LabelledAnswersHaveTheGradientOfTheirOwnLogProbability) {
  const PreferenceOptions kto = {
      .kind = PreferenceKind::kKto, .beta = 0.4, .desirable_weight = 2, .undesirable_weight = 0.5};
  HeadBench bench(kto, [](std::int64_t sample) {
    return SampleFacts{.reference = sample % 2 == 0 ? -4.0 : 0.0, .is_desirable = sample == 40};
  });
  EXPECT_LT(bench.worst_error(), 1e-8);
  const PreferenceSums sums = bench.forward(false);
  EXPECT_EQ(sums.num_chosen, 1);
  EXPECT_EQ(sums.num_rejected, 1);
  EXPECT_EQ(sums.num_pairs, 2);
}

TEST(PreferenceHead, WithoutFactsGivesTheLossOfEachToken) {
  HeadBench bench({}, {});
  bench.run.run.training = false;
  bench.head->forward(bench.run, {.x = bench.x, .y = bench.y, .batch = &bench.batch});
  const std::vector<double> rows = sums_of_rows(bench.y);
  ASSERT_EQ(rows.size(), 4U);
  bench.source->of = [&](std::int64_t sample) {
    return SampleFacts{.reference = -rows[static_cast<std::size_t>(sample - 40)]};
  };
  // Answers that are as likely as before: log 2 for each pair, and no reward.
  const PreferenceSums sums = bench.forward(false);
  EXPECT_NEAR(sums.loss, 2 * std::log(2.0), 1e-12);
  EXPECT_NEAR(sums.chosen_reward, 0, 1e-12);
  EXPECT_EQ(sums.num_pairs, 2);
}

TEST(PreferenceHead, EmptyRowsHaveNoLossAndNoGradient) {
  HeadBench bench({}, some_facts);
  std::fill(bench.targets.begin() + 2 * kLength, bench.targets.end(), kIgnoreTarget);
  const PreferenceSums sums = bench.forward(true);
  EXPECT_EQ(sums.num_pairs, 1);
  EXPECT_EQ(sums.num_chosen, 1);
  const HostRead dx(bench.kept[0]);
  const auto elements = dx.elements<double>();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i >= elements.size() / 2) {
      EXPECT_EQ(elements[i], 0) << i;
    }
  }
}

TEST(PreferenceLosses, StayFiniteFarFromTheReference) {
  for (const double far : {-2000.0, 2000.0}) {
    for (const PreferenceOptions& options : {PreferenceOptions(), kSmoothed, kRobust, kHinge}) {
      const SequenceScore sequences[] = {{.logp = -3000, .reference = -3000 - far, .tokens = 9},
                                         {.logp = -10, .reference = -10, .tokens = 9}};
      const PairLoss pair = preference_losses(options, sequences).front();
      EXPECT_TRUE(std::isfinite(pair.loss) && std::isfinite(pair.first_slope)) << far;
      EXPECT_EQ(pair.is_right, far > 0);
    }
  }
}

}  // namespace
}  // namespace atl::nn
