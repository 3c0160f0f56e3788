#include "atoll/ops/expert_factors/expert_factors.h"

#include <gtest/gtest.h>

#include <vector>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kExperts = 3, kRank = 2, kWidth = 7;
const std::vector<std::int64_t> kColumns = {0, 2, 4, 1, 3};

TEST(ExpertFactors, RanksOfAnExpertComeTogether) {
  TestRun run;
  auto factor = random_tensor<double>({kExperts * kRank, kWidth}, 1);
  for (const bool by_rank : {false, true}) {
    OwnedTensor<double> to({kExperts * kRank, std::ssize(kColumns)});
    order_factor(run, 0.5, {kExperts, by_rank, kColumns}, factor, to);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::int64_t j = 0; j < kRank; ++j) {
        const std::int64_t row = by_rank ? j * kExperts + e : e * kRank + j;
        for (std::size_t k = 0; k < kColumns.size(); ++k) {
          const auto at = (e * kRank + j) * std::ssize(kColumns) + static_cast<std::int64_t>(k);
          EXPECT_EQ(to[at], 0.5 * factor[row * kWidth + kColumns[k]]) << at;
        }
      }
    }
  }
}

// <dto, order(x)> = <order_backward(dto), x> for all x: the backward pass is the transpose.
TEST(ExpertFactors, GradientIsTheTranspose) {
  TestRun run;
  auto factor = random_tensor<double>({kExperts * kRank, kWidth}, 1);
  auto dto = random_tensor<double>({kExperts * kRank, std::ssize(kColumns)}, 2);
  for (const bool by_rank : {false, true}) {
    OwnedTensor<double> to(dto.shape), dfactor(factor.shape, 1.0);
    const FactorOrder order = {kExperts, by_rank, kColumns};
    order_factor(run, 0.5, order, factor, to);
    order_factor_backward(run, 0.5, order, dto, dfactor);
    double forward = 0, backward = 0;
    for (std::int64_t i = 0; i < to.size(); ++i) forward += dto[i] * to[i];
    for (std::int64_t i = 0; i < factor.size(); ++i) backward += (dfactor[i] - 1) * factor[i];
    EXPECT_NEAR(forward, backward, 1e-12);
  }
}

}  // namespace
}  // namespace atl::ops
