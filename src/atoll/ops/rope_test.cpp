#include "atoll/ops/rope.h"

#include <gtest/gtest.h>

#include "atoll/ops/ref/rope.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr HeadLayout kLayouts[] = {{1, 1, 2}, {3, 1, 6}, {4, 2, 34}, {2, 2, 64}};

// Rows of cos then sin of the angles position * 10000^(-2i / head_dim).
template <typename T>
OwnedTensor<T> make_table(std::int64_t positions, std::int64_t head_dim) {
  OwnedTensor<T> table({positions, head_dim});
  const std::int64_t half = head_dim / 2;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / head_dim);
      table[p * head_dim + i] = static_cast<T>(static_cast<float>(std::cos(angle)));
      table[p * head_dim + half + i] = static_cast<T>(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

TEST(Rope, MatchesRefInDouble) {
  TestRun run;
  for (const HeadLayout& heads : kLayouts) {
    for (const bool inverse : {false, true}) {
      auto fast = random_tensor<float>({2, 19, heads.qkv_width()}, 1);
      auto exact = random_tensor<double>({2, 19, heads.qkv_width()}, 1);
      auto table = make_table<float>(24, heads.head_dim);
      auto table_in_double = make_table<double>(24, heads.head_dim);
      rope(run, heads, table, 5, {}, inverse, fast);
      ref::rope<double>(heads, table_in_double, 5, {}, inverse, exact);
      // Two products of at most 1, each rounded, and their sum.
      EXPECT_LE(test::max_abs_difference(fast, exact), 2 * 0x1p-23);
    }
  }
}

TEST(Rope, IsARotationByThePositionOfQueriesAndKeysAlone) {
  TestRun run;
  const HeadLayout heads{2, 1, 4};  // 2 query heads, 1 key head, 1 value head
  OwnedTensor<double> qkv({1, 3, heads.qkv_width()}, 1.0);
  auto table = make_table<double>(3, heads.head_dim);
  rope(run, heads, table, 0, {}, false, qkv);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t head = 0; head < 4; ++head) {
      for (std::int64_t i = 0; i < 2; ++i) {
        const double angle = head == 3 ? 0 : t * (i == 0 ? 1.0 : 0.01);
        const std::int64_t at = t * heads.qkv_width() + head * 4 + i;
        EXPECT_NEAR(qkv[at], std::cos(angle) - std::sin(angle), 1e-6);
        EXPECT_NEAR(qkv[at + 2], std::cos(angle) + std::sin(angle), 1e-6);
      }
    }
  }
}

// The rotation is linear and orthogonal: its gradient is its transpose, which is its inverse.
TEST(Rope, InverseIsTheGradient) {
  TestRun run;
  const HeadLayout heads{3, 1, 6};
  auto x = random_tensor<double>({1, 4, heads.qkv_width()}, 1);
  const auto dy = random_tensor<double>({1, 4, heads.qkv_width()}, 2);
  auto table = make_table<double>(7, heads.head_dim);
  auto dx = dy;
  rope(run, heads, table, 2, {}, true, dx);
  const auto loss = [&] {
    auto y = x;
    rope(run, heads, table, 2, {}, false, y);
    return test::dot(dy, y);
  };
  EXPECT_LE(test::max_relative_error(dx, test::finite_difference(x, loss)), 1e-8);
}

TEST(Rope, ThreadCountChangesNoBit) {
  const HeadLayout heads{4, 2, 34};
  auto table = make_table<float>(70, heads.head_dim);
  OwnedTensor<float> results[3];
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    results[threads - 1] = random_tensor<float>({3, 65, heads.qkv_width()}, 1);
    rope(run, heads, table, 3, {}, false, results[threads - 1]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Rope, PositionsRestartWithEachDocument) {
  const HeadLayout heads{2, 1, 6};
  const std::int32_t starts[] = {0, 0, 2, 3, 3, 3, 0, 1, 1, 1, 1, 5};
  OwnedTensor<std::int32_t> document_start({2, 6});
  std::copy(std::begin(starts), std::end(starts), document_start.values.begin());
  auto table = make_table<float>(6, heads.head_dim);
  TestRun run;
  const auto x = random_tensor<float>({2, 6, heads.qkv_width()}, 1);
  auto packed = x;
  rope(run, heads, table, 1, document_start, false, packed);
  const std::int64_t width = heads.qkv_width();
  for (std::int64_t row = 0; row < 12; ++row) {
    OwnedTensor<float> alone({1, 1, width});
    std::copy_n(x.values.begin() + row * width, width, alone.values.begin());
    rope(run, heads, table, 1 + row % 6 - document_start[row], {}, false, alone);
    EXPECT_TRUE(
        std::equal(alone.values.begin(), alone.values.end(), packed.values.begin() + row * width))
        << row;
  }
}

TEST(Rope, RefusesPositionsBeyondTheTable) {
  TestRun run;
  const HeadLayout heads{1, 1, 4};
  auto table = make_table<float>(8, 4);
  OwnedTensor<float> qkv({1, 4, heads.qkv_width()});
  EXPECT_NO_THROW(rope(run, heads, table, 4, {}, false, qkv));
  EXPECT_THROW(rope(run, heads, table, 5, {}, false, qkv), Error);
  EXPECT_THROW(rope(run, heads, table, -1, {}, false, qkv), Error);
  // Rows longer than the table are fine as long as their documents are not.
  OwnedTensor<std::int32_t> starts({1, 4}, 0);
  starts[2] = starts[3] = 2;
  EXPECT_NO_THROW(rope(run, heads, table, 6, starts, false, qkv));
  EXPECT_THROW(rope(run, heads, table, 7, starts, false, qkv), Error);
  starts[3] = 4;
  EXPECT_THROW(rope(run, heads, table, 0, starts, false, qkv), Error);
}

}  // namespace
}  // namespace atl::ops
