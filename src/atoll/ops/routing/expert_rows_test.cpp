#include "atoll/ops/routing/expert_rows.h"

#include <gtest/gtest.h>

#include "atoll/ops/storage.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;
using test::TestRun;

// Four tokens with two choices each among three experts.
struct Assigned {
  explicit Assigned(std::int64_t capacity = 4) {
    experts.values = {2, 0, 2, 1, 0, 2, 2, 0};
    assign_rows(run, experts, capacity, places, sources, offsets);
  }
  TestRun run;
  OwnedTensor<std::int32_t> experts{{4, 2}};
  OwnedTensor<std::int32_t> places{{4, 2}};
  OwnedTensor<std::int32_t> sources{{8}};
  OwnedTensor<std::int32_t> offsets{{4}};
};

TEST(AssignRows, PutsEachExpertsTokensTogetherInOrder) {
  Assigned rows;
  EXPECT_EQ(rows.offsets.values, (std::vector<std::int32_t>{0, 3, 4, 8}));
  EXPECT_EQ(rows.sources.values, (std::vector<std::int32_t>{1, 4, 7, 3, 0, 2, 5, 6}));
  EXPECT_EQ(rows.places.values, (std::vector<std::int32_t>{4, 0, 5, 3, 1, 6, 7, 2}));
}

TEST(AssignRows, AFullExpertTakesTheFirstAlone) {
  Assigned rows(2);
  EXPECT_EQ(rows.offsets.values, (std::vector<std::int32_t>{0, 2, 3, 5}));
  EXPECT_EQ(rows.sources.values, (std::vector<std::int32_t>{1, 4, 3, 0, 2, -1, -1, -1}));
  EXPECT_EQ(rows.places.values, (std::vector<std::int32_t>{3, 0, 4, 2, 1, -1, -1, -1}));
}

TEST(AssignRows, AnExpertThatIsNoneIsAnError) {
  Assigned rows;
  rows.experts[3] = 3;
  EXPECT_THROW(assign_rows(rows.run, rows.experts, 4, rows.places, rows.sources, rows.offsets),
               Error);
}

TEST(GatherRows, CopiesTokensAndClearsWhatIsLeftOver) {
  Assigned rows(2);
  auto x = random_tensor<float>({4, 5}, 1);
  OwnedTensor<float> gathered({8, 5}, 9.0F);
  gather_rows(rows.run, x, rows.sources, gathered);
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t c = 0; c < 5; ++c) {
      const std::int32_t source = rows.sources[i];
      EXPECT_EQ(gathered[i * 5 + c], source < 0 ? 0 : x[source / 2 * 5 + c]);
    }
  }
}

template <typename T>
OwnedTensor<T> combined(Assigned& rows, OwnedTensor<T> from, OwnedTensor<Compute<T>>* weights) {
  OwnedTensor<T> y({4, from.shape.dim(1)});
  combine_rows(rows.run, from, rows.places, weights == nullptr ? Tensor() : weights->view(), y);
  return y;
}

TEST(CombineRows, SumsATokensRowsByTheirWeights) {
  for (const std::int64_t capacity : {4, 2}) {
    Assigned rows(capacity);
    auto from = random_tensor<double>({8, 5}, 2);
    auto weights = random_tensor<double>({4, 2}, 3);
    const auto y = combined<double>(rows, from, &weights);
    const auto plain = combined<double>(rows, from, nullptr);
    for (std::int64_t t = 0; t < 4; ++t) {
      for (std::int64_t c = 0; c < 5; ++c) {
        double sum = 0, plain_sum = 0;
        for (std::int64_t j = 0; j < 2; ++j) {
          const std::int32_t place = rows.places[t * 2 + j];
          if (place < 0) continue;
          sum += weights[t * 2 + j] * from[place * 5 + c];
          plain_sum += from[place * 5 + c];
        }
        EXPECT_DOUBLE_EQ(y[t * 5 + c], sum);
        EXPECT_DOUBLE_EQ(plain[t * 5 + c], plain_sum);
      }
    }
  }
}

TEST(CombineRows, Bf16IsSummedInF32AndRoundedOnce) {
  Assigned rows;
  auto narrow = random_tensor<float>({8, 5}, 2).as<Bf16>();
  auto weights = random_tensor<float>({4, 2}, 3);
  const auto y = combined<Bf16>(rows, narrow, &weights);
  const auto wide = combined<float>(rows, narrow.as<float>(), &weights);
  EXPECT_EQ(y, wide.as<Bf16>());
}

// With o = h W^T, y = combine(o, w) and a loss <dy, y>: the gradients of w and h that weigh_rows
// makes, against the definition.
TEST(WeighRows, IsTheGradientOfWeightsAndScalesTheRest) {
  for (const std::int64_t capacity : {4, 2}) {
    Assigned rows(capacity);
    auto weights = random_tensor<double>({4, 2}, 3);
    auto dh = random_tensor<double>({8, 17}, 4);
    const auto h = random_tensor<double>({8, 17}, 5);
    const auto d = random_tensor<double>({8, 3}, 6);
    auto scaled_h = h;
    auto scaled_d = d;
    OwnedTensor<double> dweights({4, 2}, 9.0);
    weigh_rows(rows.run, weights, rows.sources, dh, scaled_h, scaled_d, dweights);
    for (std::int64_t choice = 0; choice < 8; ++choice) {
      const std::int32_t place = rows.places[choice];
      double sum = 0;
      for (std::int64_t f = 0; place >= 0 && f < 17; ++f) {
        sum += dh[place * 17 + f] * h[place * 17 + f];
        EXPECT_EQ(scaled_h[place * 17 + f], weights[choice] * h[place * 17 + f]);
      }
      for (std::int64_t c = 0; place >= 0 && c < 3; ++c) {
        EXPECT_EQ(scaled_d[place * 3 + c], weights[choice] * d[place * 3 + c]);
      }
      EXPECT_NEAR(dweights[choice], sum, 1e-14);
    }
  }
}

TEST(ExpertRows, NoNumberOfThreadsChangesABit) {
  std::vector<OwnedTensor<float>> all;
  for (const int threads : {1, 2, 5}) {
    TestRun run(threads);
    auto experts = random_tokens({3000, 2}, 5, 1);
    OwnedTensor<std::int32_t> places({3000, 2}), sources({6000}), offsets({6});
    assign_rows(run, experts, 3000, places, sources, offsets);
    auto x = random_tensor<float>({3000, 40}, 2);
    auto weights = random_tensor<float>({3000, 2}, 3);
    OwnedTensor<float> rows({6000, 40}), y({3000, 40}), dweights({3000, 2});
    gather_rows(run, x, sources, rows);
    auto d = rows;
    weigh_rows(run, weights, sources, rows, rows, d, dweights);
    combine_rows(run, d, places, weights, y);
    all.push_back(y);
    all.push_back(dweights);
  }
  for (std::size_t i = 2; i < all.size(); ++i) EXPECT_EQ(all[i], all[i % 2]);
}

}  // namespace
}  // namespace atl::ops
