#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "atoll/ops/cross_entropy/args.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/storage.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

/// Operands and results of one call.
template <typename T>
struct Head {
  Head(std::int64_t rows, std::int64_t width, std::int64_t vocab)
      : x(random_tensor<T>({rows, width}, 1)),
        weight(random_tensor<T>({vocab, width}, 2)),
        targets(test::random_tokens({rows}, vocab, 3)),
        loss({rows}),
        dx({rows, width}),
        dweight({vocab, width}) {}

  void call(Run& run, bool gradients) {
    linear_cross_entropy(run, grad_scale, x, weight, targets, loss,
                         gradients ? dx.view() : Tensor{}, gradients ? dweight.view() : Tensor{});
  }
  std::size_t scratch_bytes() {
    return linear_cross_entropy_scratch_bytes(x.view().spec(), weight.view().spec());
  }

  double grad_scale = 0.25;
  OwnedTensor<T> x;
  OwnedTensor<T> weight;
  OwnedTensor<std::int32_t> targets;
  OwnedTensor<Compute<T>> loss;
  OwnedTensor<T> dx;
  OwnedTensor<Compute<T>> dweight;
};

TEST(LinearCrossEntropy, GradientsMatchFiniteDifferences) {
  TestRun run;
  Head<double> head(7, 5, 11);
  head.targets[3] = kIgnoreTarget;
  head.call(run, true);
  Head<double> probe = head;
  const auto scaled_loss = [&] {
    probe.call(run, false);
    return head.grad_scale *
           std::accumulate(probe.loss.values.begin(), probe.loss.values.end(), 0.0);
  };
  // Central differences are good to about 1e-10 here (see finite_difference).
  EXPECT_LE(test::max_abs_difference(head.dx, test::finite_difference(probe.x, scaled_loss)), 1e-8);
  EXPECT_LE(
      test::max_abs_difference(head.dweight, test::finite_difference(probe.weight, scaled_loss)),
      1e-8);
}

/// f32 against f64 of the same numbers: |logits| <= C, so each logit is off by at most about
/// sqrt(C) eps C, and a probability, relative to itself, by as much.
void expect_f32_matches_f64(std::int64_t rows, std::int64_t width, std::int64_t vocab) {
  Head<double> wide(rows, width, vocab);
  Head<float> narrow(rows, width, vocab);
  wide.targets[rows / 2] = narrow.targets[rows / 2] = kIgnoreTarget;
  TestRun wide_run(2, wide.scratch_bytes());
  TestRun narrow_run(2, narrow.scratch_bytes());
  wide.call(wide_run, true);
  narrow.call(narrow_run, true);
  const double eps = std::numeric_limits<float>::epsilon();
  const double bound = 4 * std::sqrt(width + 0.0) * eps * static_cast<double>(width);
  EXPECT_LE(test::max_abs_difference(narrow.loss, wide.loss), bound) << rows << " rows";
  EXPECT_LE(test::max_relative_error(narrow.dx, wide.dx), bound) << rows << " rows";
  EXPECT_LE(test::max_relative_error(narrow.dweight, wide.dweight), bound) << rows << " rows";
}

class CrossEntropyTargets : public test::EachTarget {};

TEST_P(CrossEntropyTargets, F32MatchesF64AcrossChunkBoundaries) {
  for (const std::int64_t rows : {1, 5, 511, 512, 513, 1030, 1537}) {
    expect_f32_matches_f64(rows, 17, 37);
  }
  expect_f32_matches_f64(600, 24, 700);   // every operand repacked
  expect_f32_matches_f64(513, 130, 300);  // the last chunk is cut otherwise than the full ones
  expect_f32_matches_f64(3, 8, 9001);     // more than one segment of the sum over the vocabulary
}

class LinearCrossEntropyBf16 : public ::testing::TestWithParam<Bf16Arithmetic> {
 protected:
  void SetUp() override {
    if (!has_bf16_arithmetic(GetParam())) GTEST_SKIP() << "this CPU does not have it";
    set_bf16_arithmetic(GetParam());
  }
  void TearDown() override { reset_bf16_arithmetic(); }
};

TEST_P(LinearCrossEntropyBf16, MatchesF64RoundedOnce) {
  for (const std::int64_t rows : {1, 5, 513, 1030}) {
    constexpr std::int64_t kWidth = 65;
    Head<Bf16> narrow(rows, kWidth, 701);
    narrow.targets[rows / 2] = kIgnoreTarget;
    Head<double> wide(rows, kWidth, 701);
    wide.x = narrow.x.as<double>();
    wide.weight = narrow.weight.as<double>();
    wide.targets = narrow.targets;
    TestRun wide_run(2, wide.scratch_bytes());
    wide.call(wide_run, true);
    OwnedTensor<float> loss_of_one;
    OwnedTensor<Bf16> dx_of_one;
    // As for f32: the logits and their gradients are never rounded to bf16. Of two bf16, which
    // tiles of AMX take, the error of 2^-18 is far below.
    const double bound = 4 * std::sqrt(kWidth + 0.0) * std::numeric_limits<float>::epsilon() *
                         static_cast<double>(kWidth);
    for (const int threads : {1, 2, 3}) {
      TestRun run(threads, narrow.scratch_bytes());
      std::fill(narrow.dweight.values.begin(), narrow.dweight.values.end(), 0.0F);
      narrow.call(run, true);
      EXPECT_LE(test::max_abs_difference(narrow.loss, wide.loss), bound) << rows;
      EXPECT_LE(test::max_relative_error(narrow.dweight, wide.dweight), bound) << rows;
      EXPECT_LE(test::max_error_beyond_rounding(narrow.dx, wide.dx), bound * test::max_abs(wide.dx))
          << rows;
      if (threads == 1) {
        loss_of_one = narrow.loss;
        dx_of_one = narrow.dx;
      }
      EXPECT_EQ(narrow.loss, loss_of_one);
      EXPECT_EQ(narrow.dx, dx_of_one);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearCrossEntropyBf16,
                         ::testing::Values(Bf16Arithmetic::kF32, Bf16Arithmetic::kLibrary,
                                           Bf16Arithmetic::kAmx),
                         [](const auto& one) {
                           return std::string(bf16_arithmetic_name(one.param));
                         });

TEST(LinearCrossEntropy, EvaluationGivesTheSameLossAndNoGradient) {
  TestRun run;
  Head<float> train(600, 16, 50);
  Head<float> evaluate(600, 16, 50);
  train.call(run, true);
  evaluate.call(run, false);
  EXPECT_TRUE(train.loss == evaluate.loss);
  EXPECT_THAT(evaluate.dx.values, testing::Each(0.0F));
}

TEST(LinearCrossEntropy, AddsToTheWeightGradientAndFillsTheInputGradient) {
  TestRun run;
  Head<float> once(40, 16, 50);
  once.call(run, true);
  Head<float> twice = once;
  twice.call(run, true);
  EXPECT_TRUE(twice.dx == once.dx);
  for (float& value : once.dweight.values) value *= 2;
  EXPECT_LE(test::max_relative_error(twice.dweight, once.dweight), 1e-5);
}

TEST(LinearCrossEntropy, ThreadCountChangesNoBit) {
  Head<float> expected(1100, 64, 520);
  TestRun one(1);
  expected.call(one, true);
  for (const int threads : {2, 3, 4}) {
    TestRun run(threads);
    Head<float> head(1100, 64, 520);
    head.call(run, true);
    EXPECT_TRUE(head.loss == expected.loss && head.dx == expected.dx &&
                head.dweight == expected.dweight)
        << threads << " threads";
  }
}

TEST(LinearCrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  TestRun run;
  Head<float> head(20, 8, 33);
  for (std::int64_t row = 0; row < 20; ++row) head.targets[row] = kIgnoreTarget;
  for (float& value : head.dx.values) value = 7;  // must be overwritten
  head.call(run, true);
  EXPECT_THAT(head.loss.values, testing::Each(0.0F));
  EXPECT_THAT(head.dx.values, testing::Each(0.0F));
  EXPECT_THAT(head.dweight.values, testing::Each(0.0F));
}

TEST_P(CrossEntropyTargets, HugeLogitsGiveFiniteLosses) {
  TestRun run;
  Head<float> head(4, 1, 19);
  for (std::int64_t row = 0; row < 4; ++row) head.x[row] = 1;
  for (std::int64_t v = 0; v < 19; ++v) head.weight[v] = v == 5 ? 1e4F : -1e4F;
  head.targets.values = {5, 5, 0, 18};
  head.call(run, true);
  // All the probability is on token 5, so the loss is the distance of the target's logit.
  EXPECT_THAT(head.loss.values, testing::ElementsAre(0.0F, 0.0F, 2e4F, 2e4F));
  for (const float value : head.dweight.values) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(CrossEntropyTargets, NaNAndInfinityAreNotHidden) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t place : {0, 18}) {  // in a whole vector, and in the rest of the row
      TestRun run;
      Head<float> head(1, 1, 19);
      head.x[0] = 1;
      head.weight[place] = bad;
      head.targets[0] = 7;
      head.call(run, false);
      EXPECT_TRUE(std::isnan(head.loss[0])) << bad << " at " << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CrossEntropyTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(LinearCrossEntropy, NamesTheRowOfATargetOutsideTheVocabulary) {
  TestRun run;
  Head<float> head(6, 4, 10);
  for (const std::int32_t target : {10, -2}) {
    head.targets[4] = target;
    try {
      head.call(run, true);
      FAIL() << "target " << target << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      EXPECT_THAT(error.what(), testing::HasSubstr("row 4"));
      EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(target)));
    }
  }
}

TEST(LinearCrossEntropy, ChunksStaySmallAndEven) {
  EXPECT_EQ(cross_entropy_chunk_rows(2048, 2048), 512);
  EXPECT_EQ(cross_entropy_chunk_rows(513, 2048), 272);
  EXPECT_EQ(cross_entropy_chunk_rows(5, 2048), 5);
  EXPECT_LE(cross_entropy_chunk_rows(4096, 128256) * 128256, std::int64_t{32} << 20);
}

TEST(LinearCrossEntropy, AWeightThatIsNotTrainedChangesNoOtherResult) {
  TestRun run;
  Head<float> trained(67, 33, 129);
  Head<float> frozen = trained;
  trained.call(run, true);
  linear_cross_entropy(run, frozen.grad_scale, frozen.x, frozen.weight, frozen.targets, frozen.loss,
                       frozen.dx, {});
  EXPECT_EQ(frozen.loss.values, trained.loss.values);
  EXPECT_EQ(frozen.dx.values, trained.dx.values);
}

}  // namespace
}  // namespace atl::ops
