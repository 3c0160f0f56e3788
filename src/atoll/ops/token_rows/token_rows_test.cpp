#include "atoll/ops/token_rows/token_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kTokens = 4, kWidth = 3;
const std::vector<std::int32_t> kSlots = {-1, 1, -1, 0};  // tokens 3 and 1

OwnedTensor<std::int32_t> tokens() {
  OwnedTensor<std::int32_t> ids({6});
  ids.values = {3, 0, 1, 1, 2, 3};
  return ids;
}

TEST(TokenRows, TokensThatHaveARowGetIt) {
  TestRun run;
  auto ids = tokens();
  auto rows = random_tensor<double>({2, kWidth}, 1), beside = random_tensor<double>({6, kWidth}, 2);
  for (const bool shifts : {false, true}) {
    auto y = random_tensor<double>({6, kWidth}, 3);
    const auto before = y;
    place_token_rows(run, 2.0, kSlots, ids, rows, shifts ? beside : Tensor(), y);
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const std::int32_t slot = kSlots[static_cast<std::size_t>(ids[i / kWidth])];
      const double placed = slot < 0 ? 0 : 2 * rows[slot * kWidth + i % kWidth];
      EXPECT_EQ(y[i], slot < 0 ? before[i] : placed + (shifts ? beside[i] : 0)) << i;
    }
  }
}

TEST(TokenRows, GradientsOfATokenAreAddedUp) {
  auto ids = tokens();
  auto dy = random_tensor<float>({6, kWidth}, 3);
  for (const int threads : {1, 3}) {
    TestRun run(threads);
    OwnedTensor<float> drows({2, kWidth}, 1.0F);
    place_token_rows_backward(run, 2.0, kSlots, ids, dy, drows);
    for (std::int64_t c = 0; c < kWidth; ++c) {
      EXPECT_EQ(drows[c], (1.0F + 2 * dy[c]) + 2 * dy[5 * kWidth + c]);
      EXPECT_EQ(drows[kWidth + c], (1.0F + 2 * dy[2 * kWidth + c]) + 2 * dy[3 * kWidth + c]);
    }
  }
}

TEST(TokenRows, ColumnsAreTakenAndPutBack) {
  TestRun run;
  auto logits = random_tensor<double>({5, kTokens}, 4);
  const auto before = logits;
  OwnedTensor<double> taken({5, 2});
  const std::vector<std::int64_t> columns = {3, 1};
  take_columns(run, columns, logits, taken);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const bool is_taken = i % kTokens == 1 || i % kTokens == 3;
    EXPECT_EQ(logits[i], is_taken ? 0 : before[i]) << i;
  }
  put_columns(run, columns, taken, logits);
  EXPECT_EQ(logits.values, before.values);
}

}  // namespace
}  // namespace atl::ops
