// Parts of a vocabulary, put together, against the op that has all of it.

#include "atoll/ops/embedding/vocabulary_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/ops/embedding/ref_vocabulary_part.h"
#include "atoll/ops/testing.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;
using test::TestRun;

constexpr std::int64_t kRows = 7;

// The logits of columns [first, first + size) of a table of `total` columns.
template <typename T>
OwnedTensor<T> columns(const OwnedTensor<T>& all, std::int64_t first, std::int64_t size,
                       std::int64_t total) {
  OwnedTensor<T> part({kRows, size});
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t v = 0; v < size; ++v) part[row * size + v] = all[row * total + first + v];
  }
  return part;
}

template <typename T>
struct Result {
  OwnedTensor<T> loss{{kRows}};
  OwnedTensor<T> gradient;  // of all columns
};

template <typename T>
Result<T> in_parts(const OwnedTensor<T>& logits, OwnedTensor<std::int32_t>& targets,
                   std::int64_t total, int num_parts) {
  TestRun run;
  OwnedTensor<double> statistics({num_parts, kRows, kNumSoftmaxStatistics});
  std::vector<VocabularyPart> parts;
  std::vector<OwnedTensor<T>> exps;
  for (int p = 0; p < num_parts; ++p) {
    const std::int64_t first = total * p / num_parts;
    parts.push_back({first, total * (p + 1) / num_parts - first, total});
    exps.push_back(columns(logits, first, parts.back().size, total));
    softmax_part(run, parts.back(), exps.back(), targets,
                 statistics.view().rows(p, p + 1).reshaped({kRows, kNumSoftmaxStatistics}));
  }
  Result<T> result;
  result.gradient = OwnedTensor<T>({kRows, total});
  for (int p = 0; p < num_parts; ++p) {
    auto& exp = exps[static_cast<std::size_t>(p)];
    const VocabularyPart& part = parts[static_cast<std::size_t>(p)];
    cross_entropy_part(run, part, p, 0.25, statistics, targets, exp, result.loss, true);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t v = 0; v < part.size; ++v) {
        result.gradient[row * total + part.first + v] = exp[row * part.size + v];
      }
    }
  }
  return result;
}

template <typename T>
void expect_parts_agree(double tolerance) {
  for (const std::int64_t total : {5, 67, 300}) {
    auto logits = random_tensor<T>({kRows, total}, 1, 20);
    auto targets = random_tokens({kRows}, static_cast<std::int32_t>(total), 2);
    targets[2] = kIgnoreTarget;
    const Result<T> one = in_parts(logits, targets, total, 1);
    EXPECT_EQ(one.loss[2], 0);
    for (const int num_parts : {2, 3, 5}) {
      const Result<T> many = in_parts(logits, targets, total, num_parts);
      for (std::int64_t i = 0; i < one.loss.size(); ++i) {
        EXPECT_NEAR(many.loss[i], one.loss[i], tolerance * 100) << total << " " << num_parts;
      }
      for (std::int64_t i = 0; i < one.gradient.size(); ++i) {
        ASSERT_NEAR(many.gradient[i], one.gradient[i], tolerance) << total << " " << num_parts;
      }
    }
    // Against the definition.
    for (std::int64_t row = 0; row < kRows; ++row) {
      if (row == 2) continue;
      double sum = 0;
      for (std::int64_t v = 0; v < total; ++v) {
        sum += std::exp(static_cast<double>(logits[row * total + v]));
      }
      const auto target = static_cast<std::int64_t>(targets[row]);
      EXPECT_NEAR(one.loss[row], std::log(sum) - static_cast<double>(logits[row * total + target]),
                  tolerance * 100);
      for (std::int64_t v = 0; v < total; ++v) {
        const double p = std::exp(static_cast<double>(logits[row * total + v])) / sum;
        ASSERT_NEAR(one.gradient[row * total + v], 0.25 * (p - (v == target ? 1 : 0)), tolerance);
      }
    }
  }
}

TEST(VocabularyPart, PartsMakeTheWholeCrossEntropy) {
  expect_parts_agree<double>(1e-15);
  expect_parts_agree<float>(3e-7);  // a few units in the last place of numbers up to 1
}

TEST(VocabularyPart, TokensOfOtherPartsAreZeroRows) {
  TestRun run;
  const VocabularyPart part = {3, 4, 10};
  OwnedTensor<std::int32_t> tokens({5});
  tokens.values = {3, 0, 6, 7, 9};
  OwnedTensor<std::int32_t> local({5});
  local_tokens(run, part, tokens, local);
  EXPECT_THAT(local.values, ::testing::ElementsAre(0, 0, 3, 0, 0));
  auto y = random_tensor<float>({5, 2}, 1);
  const auto before = y;
  clear_foreign_rows(run, part, tokens, y);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], i / 2 == 0 || i / 2 == 2 ? before[i] : 0.0F) << i;
  }
}

TEST(VocabularyPart, WhatIsOutsideTheVocabularyIsRefused) {
  TestRun run;
  const VocabularyPart part = {3, 4, 10};
  OwnedTensor<std::int32_t> tokens({1}, 10), local({1});
  EXPECT_THROW(local_tokens(run, part, tokens, local), Error);
  auto logits = random_tensor<float>({1, 4}, 1);
  OwnedTensor<double> statistics({1, kNumSoftmaxStatistics});
  EXPECT_THROW(softmax_part(run, part, logits, tokens, statistics), Error);
}

TEST(VocabularyPart, ALogitThatIsNotFiniteIsSeenInTheLoss) {
  TestRun run;
  const VocabularyPart part = {0, 4, 4};
  OwnedTensor<std::int32_t> targets({1}, 1);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto logits = random_tensor<float>({1, 4}, 1);
    logits[2] = bad;
    OwnedTensor<double> statistics({1, 1, kNumSoftmaxStatistics});
    softmax_part(run, part, logits, targets,
                 statistics.view().reshaped({1, kNumSoftmaxStatistics}));
    OwnedTensor<float> loss({1});
    cross_entropy_part(run, part, 0, 1, statistics, targets, logits, loss, false);
    EXPECT_FALSE(std::isfinite(loss[0])) << bad;
  }
}

}  // namespace
}  // namespace atl::ops
