// One optimizer step: what accumulation, decay groups, clipping and bad numbers do to it.

#include "atoll/train/step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "atoll/data/loader.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using testing::Bench;
using ::testing::ElementsAre;

constexpr std::int64_t kContext = 16;

StateOptions options(const std::string& family, std::int64_t micro_batch = 4) {
  return {.model = testing::tiny_model(family), .micro_batch = micro_batch, .context = kContext};
}

class Step : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Families, Step, ::testing::Values("llama", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Step, HowASampleIsPackedIntoMicroBatchesDoesNotMatter) {
  StateOptions whole = options(GetParam(), 8);
  whole.build.dropout = 0.1;  // masks belong to samples, not to rows
  Bench one(whole);
  const StepResult expected = one.step({.lr = 0});
  const Tensor truth = one.state.store().grads();
  for (const std::int64_t micro_batch : {4, 2, 1}) {
    StateOptions parts = whole;
    parts.micro_batch = micro_batch;
    Bench many(parts);
    const StepResult result = many.step({.lr = 0});
    // Sums over the step's 128 tokens in another order: off by 128 eps of their size at worst.
    const double eps = std::numeric_limits<float>::epsilon();
    EXPECT_NEAR(result.loss, expected.loss, 128 * eps * expected.loss);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 128 * eps * expected.grad_norm);
    const Tensor grads = many.state.store().grads();
    double worst = 0;
    double largest = 0;
    for (std::int64_t i = 0; i < grads.num_elements(); ++i) {
      const double truly = truth.data<float>()[i];
      worst = std::max(worst, std::abs(grads.data<float>()[i] - truly));
      largest = std::max(largest, std::abs(truly));
    }
    EXPECT_GT(largest, 1e-3);
    EXPECT_LT(worst, 128 * eps * largest) << "micro-batches of " << micro_batch;
  }
}

TEST_P(Step, TheLossIsTheMeanOverAllTargets) {
  Bench bench(options(GetParam(), 2));
  double sum = 0;
  for (std::int64_t at = 0; at < Bench::kSamples; at += 2) {
    sum += bench.state.runner().evaluate(bench.run, {bench.tokens.view().rows(at, at + 2),
                                                     bench.targets.view().rows(at, at + 2), at});
  }
  EXPECT_DOUBLE_EQ(bench.step({.lr = 0}).loss, sum / (Bench::kSamples * kContext));
}

// Sample s keeps s + 1 targets: a mean of means over micro-batches would weigh them wrong.
void mask_unevenly(Bench& bench) {
  for (std::int64_t s = 0; s < Bench::kSamples; ++s) {
    for (std::int64_t t = s + 1; t < kContext; ++t) bench.targets[s * kContext + t] = kIgnoreTarget;
    bench.step_targets += s + 1;
  }
}

TEST_P(Step, WhereTargetsAreMissingEveryOneLeftCountsTheSame) {
  Bench whole(options(GetParam(), 8));
  mask_unevenly(whole);
  const StepResult expected = whole.step({.lr = 0});
  EXPECT_EQ(expected.targets, 36);
  const double sum =
      whole.state.runner().evaluate(whole.run, {whole.tokens.view(), whole.targets.view(), 0});
  EXPECT_DOUBLE_EQ(expected.loss, sum / 36);
  Bench parts(options(GetParam(), 1));
  mask_unevenly(parts);
  const StepResult result = parts.step({.lr = 0});
  const double eps = std::numeric_limits<float>::epsilon();
  EXPECT_NEAR(result.loss, expected.loss, 128 * eps * expected.loss);
  EXPECT_NEAR(result.grad_norm, expected.grad_norm, 128 * eps * expected.grad_norm);
}

TEST_P(Step, TheGradientIsThatOfTheMeanLoss) {
  Bench bench(options(GetParam(), 2));
  const StepResult start = bench.step({.lr = 0});
  const Tensor values = bench.state.store().values();
  const Tensor grads = bench.state.store().grads();
  const std::vector<float> saved(values.data<float>(),
                                 values.data<float>() + values.num_elements());
  const std::vector<float> direction(grads.data<float>(),
                                     grads.data<float>() + grads.num_elements());
  // Along its own direction the loss must rise by the gradient's norm.
  const auto loss_at = [&](double distance) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      values.data<float>()[i] =
          saved[i] + static_cast<float>(distance / start.grad_norm) * direction[i];
    }
    return bench.step({.lr = 0}).loss;
  };
  constexpr double kStep = 0.01;
  const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  // Losses near 4 in f32, so 1e-6 / kStep of rounding; and kStep squared of the third derivative.
  EXPECT_NEAR(slope, start.grad_norm, 2e-3 * start.grad_norm);
}

TEST_P(Step, MatricesDecayAndNormsAndBiasesDoNot) {
  StateOptions with_decay = options(GetParam());
  with_decay.optimizer.values = {{"weight_decay", 0.5}};
  Bench bench(with_decay);
  parallel::ParamStore& store = bench.state.store();
  for (const nn::Param* param : store.params()) {
    std::fill_n(param->value.data<float>(), param->value.num_elements(), 2.0F);
  }
  // Without a gradient, decay is all that an update does: w <- w - lr * decay * w.
  bench.state.optimizer().update(bench.run, {.lr = 0.25}, store.values(), store.grads());
  for (const nn::Param* param : store.params()) {
    const float expected = param->spec.shape.rank() == 2 ? 1.75F : 2.0F;
    EXPECT_EQ(param->value.data<float>()[0], expected) << param->name;
    EXPECT_EQ(param->value.data<float>()[param->value.num_elements() - 1], expected) << param->name;
  }
}

TEST_P(Step, ClippingScalesTheGradientAndReportsItsNormAsItWas) {
  Bench free(options(GetParam()));
  Bench loose(options(GetParam()));
  Bench tight(options(GetParam()));
  const double norm = free.step({.lr = 0.01}).grad_norm;
  EXPECT_GT(norm, 0);
  EXPECT_EQ(loose.step({.lr = 0.01, .clip = 2 * norm}).grad_norm, norm);
  EXPECT_EQ(tight.step({.lr = 0.01, .clip = norm / 4}).grad_norm, norm);
  EXPECT_EQ(loose.values(), free.values());
  EXPECT_EQ(loose.moments(), free.moments());
  // A quarter is exact in binary: so is the first moment, which is linear in the gradient.
  const Tensor whole = free.state.optimizer().state()[0].tensor;
  const Tensor quarter = tight.state.optimizer().state()[0].tensor;
  ASSERT_NE(whole.data<float>()[0], 0);
  for (std::int64_t i = 0; i < whole.num_elements(); ++i) {
    ASSERT_EQ(quarter.data<float>()[i], whole.data<float>()[i] / 4) << i;
  }
}

TEST_P(Step, ANaNInOneSampleNamesItAndChangesNothing) {
  Bench bench(options(GetParam(), 2));
  bench.step({.lr = 0.01});  // moments that could be spoilt
  // A token that sample 5 alone reads.
  std::replace(bench.tokens.values.begin(), bench.tokens.values.end(), 60, 59);
  bench.tokens[5 * kContext + 3] = 60;
  Tensor embedding;
  for (const nn::Param* param : bench.state.store().params()) {
    if (param->name == "model.embed_tokens.weight" || param->name == "transformer.wte.weight") {
      embedding = param->value;
    }
  }
  ASSERT_TRUE(embedding.defined());
  // Tied to the head, the row gives every position a bad logit.
  const bool is_tied = bench.state.model().config.tie_embeddings;
  embedding.rows(60, 61).data<float>()[7] = std::nanf("");
  const std::string values = bench.values();
  const std::string moments = bench.moments();
  const StepResult result = bench.step({.step = 1, .lr = 0.01}, /*first_sample=*/16);
  EXPECT_FALSE(result.taken());
  EXPECT_TRUE(std::isnan(result.loss));
  if (is_tied) {
    EXPECT_THAT(result.nonfinite_samples, ElementsAre(16, 17, 18, 19, 20, 21, 22, 23));
  } else {
    EXPECT_THAT(result.nonfinite_samples, ElementsAre(21));
  }
  EXPECT_EQ(bench.values(), values);
  EXPECT_EQ(bench.moments(), moments);
}

TEST_P(Step, ABatchWithoutATargetChangesNothing) {
  Bench bench(options(GetParam(), 2));
  bench.step({.lr = 0.01});
  const std::string values = bench.values();
  const std::string moments = bench.moments();
  const auto targets = bench.targets.values;
  std::fill(bench.targets.values.begin(), bench.targets.values.end(), kIgnoreTarget);
  bench.step_targets = data::kNoTargets;
  const StepResult result = bench.step({.step = 1, .lr = 0.01});
  EXPECT_FALSE(result.taken());
  EXPECT_FALSE(result.has_targets);
  EXPECT_THAT(result.nonfinite_samples, ElementsAre());
  EXPECT_EQ(result.targets, 0);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(bench.values(), values);
  EXPECT_EQ(bench.moments(), moments);
  // The next step is taken as if that one had never been.
  bench.targets.values = targets;
  bench.step_targets = 0;
  Bench clean(options(GetParam(), 2));
  clean.step({.lr = 0.01});
  EXPECT_TRUE(bench.step({.step = 2, .lr = 0.01}).taken());
  EXPECT_TRUE(clean.step({.step = 2, .lr = 0.01}).taken());
  EXPECT_EQ(bench.values(), clean.values());
}

TEST_P(Step, AnInfiniteGradientNamesTheWholeStepAndChangesNothing) {
  Bench bench(options(GetParam(), 4));
  bench.step({.lr = 0.01});
  const std::string values = bench.values();
  const std::string moments = bench.moments();
  // Losses stay finite; what is in the gradient is added to.
  const auto overflow = [&] {
    bench.state.store().grads().data<float>()[3] = std::numeric_limits<float>::infinity();
  };
  const StepResult result = bench.step({.step = 1, .lr = 0.01}, 8, overflow);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_TRUE(std::isinf(result.grad_norm));
  EXPECT_THAT(result.nonfinite_samples, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(bench.values(), values);
  EXPECT_EQ(bench.moments(), moments);
  // The next step is taken as if that one had never been tried.
  Bench clean(options(GetParam(), 4));
  clean.step({.lr = 0.01});
  EXPECT_TRUE(bench.step({.step = 1, .lr = 0.01}, 8).taken());
  EXPECT_TRUE(clean.step({.step = 1, .lr = 0.01}, 8).taken());
  EXPECT_EQ(bench.values(), clean.values());
}

}  // namespace
}  // namespace atl::train
