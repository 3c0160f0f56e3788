#include "atoll/ops/matmul/grouped_matmul.h"

#include <gtest/gtest.h>

#include "atoll/ops/storage.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kIn = 70, kOut = 33, kGroups = 5, kRows = 170;

// Groups of no row, of one, of few, of many; and rows left over.
OwnedTensor<std::int32_t> group_offsets() {
  OwnedTensor<std::int32_t> at({kGroups + 1});
  at.values = {0, 0, 1, 7, 150, 163};
  return at;
}

// The group of a row; -1: left over.
std::int64_t group_of(std::int64_t row) {
  const auto at = group_offsets();
  for (std::int64_t g = 0; g < kGroups; ++g) {
    if (row < at[g + 1]) return g;
  }
  return -1;
}

// Products of rows and stacked weights in T, and the same by the definition in double.
template <typename T>
struct Products {
  explicit Products(int threads = 2) {
    TestRun run(threads);
    grouped_matmul(run, Transpose::kNT, a, w, offsets, c);
    grouped_matmul(run, Transpose::kNN, b, w, offsets, d);
    grouped_matmul_tn(run, b, a, offsets, dw);
    grouped_matmul_tn(run, b, a, offsets, dw);
    for (std::int64_t i = 0; i < kRows; ++i) {
      const std::int64_t g = group_of(i);
      for (std::int64_t n = 0; g >= 0 && n < kOut; ++n) {
        for (std::int64_t k = 0; k < kIn; ++k) {
          const std::int64_t at = (g * kOut + n) * kIn + k;
          const double x = test::number<double>(a[i * kIn + k]);
          const double y = test::number<double>(b[i * kOut + n]);
          const double weight = test::number<double>(w[at]);
          exact_c[i * kOut + n] += x * weight;
          exact_d[i * kIn + k] += y * weight;
          exact_dw[at] += 2 * x * y;
        }
      }
    }
  }

  OwnedTensor<std::int32_t> offsets = group_offsets();
  OwnedTensor<T> a = random_tensor<T>({kRows, kIn}, 1);
  OwnedTensor<T> b = random_tensor<T>({kRows, kOut}, 2);
  OwnedTensor<T> w = random_tensor<T>({kGroups * kOut, kIn}, 3);
  OwnedTensor<T> c{{kRows, kOut}, test::number<T>(9.0)};
  OwnedTensor<T> d{{kRows, kIn}, test::number<T>(9.0)};
  OwnedTensor<Compute<T>> dw{w.shape};
  OwnedTensor<double> exact_c{c.shape}, exact_d{d.shape}, exact_dw{w.shape};
};

// Sums of at most 150 terms below 1, each added with half an eps of a sum that stays below 16.
constexpr double kSums = 150 * 16 * 0x1p-24;

TEST(GroupedMatmul, IsEachGroupsProduct) {
  const Products<double> exact;
  EXPECT_LE(test::max_abs_difference(exact.c, exact.exact_c), 1e-12);
  EXPECT_LE(test::max_abs_difference(exact.d, exact.exact_d), 1e-12);
  EXPECT_LE(test::max_abs_difference(exact.dw, exact.exact_dw), 1e-12);
  const Products<Bf16> narrow;
  EXPECT_LE(test::max_error_beyond_rounding(narrow.c, narrow.exact_c), kSums);
  EXPECT_LE(test::max_error_beyond_rounding(narrow.d, narrow.exact_d), kSums);
  EXPECT_LE(test::max_abs_difference(narrow.dw, narrow.exact_dw), 2 * kSums);
}

class GroupedMatmulTargets : public test::EachTarget {};

TEST_P(GroupedMatmulTargets, F32IsEachGroupsProduct) {
  const Products<float> products;
  EXPECT_LE(test::max_abs_difference(products.c, products.exact_c), kSums);
  EXPECT_LE(test::max_abs_difference(products.d, products.exact_d), kSums);
  EXPECT_LE(test::max_abs_difference(products.dw, products.exact_dw), 2 * kSums);
}

INSTANTIATE_TEST_SUITE_P(All, GroupedMatmulTargets,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), test::target_name);

TEST(GroupedMatmul, NoNumberOfThreadsChangesABit) {
  const Products<float> one(1);
  for (const int threads : {2, 5}) {
    const Products<float> several(threads);
    EXPECT_EQ(one.c, several.c);
    EXPECT_EQ(one.d, several.d);
    EXPECT_EQ(one.dw, several.dw);
  }
}

TEST(GroupedMatmul, NeedsNoMoreScratchThanItSays) {
  for (const std::int32_t rows : {1, 100, 170}) {
    Products<float> products;
    products.offsets.values = {0, 0, 0, rows, rows, rows};
    const std::size_t bytes = grouped_matmul_scratch_bytes(
        products.b.view().spec(), products.a.view().spec(), products.w.view().spec(), kGroups);
    TestRun run(2, bytes);
    grouped_matmul(run, Transpose::kNT, products.a, products.w, products.offsets, products.c);
    grouped_matmul(run, Transpose::kNN, products.b, products.w, products.offsets, products.d);
    grouped_matmul_tn(run, products.b, products.a, products.offsets, products.dw);
  }
}

TEST(GroupedMatmul, Int8IsTheProductOfTheRoundedWeights) {
  TestRun run;
  Products<float> products;
  OwnedTensor<std::uint8_t> values(products.w.shape);
  OwnedTensor<float> scales(int8_scales_spec(products.w.shape).shape), rounded_c(products.c.shape);
  const Int8Matrix matrix = {values, scales};
  round_to_int8(run, products.w, matrix);
  grouped_matmul_int8(run, products.a, matrix, products.offsets, rounded_c);
  // 70 weights each off by half of 1/127 at most, by inputs below 1, and signs that differ.
  EXPECT_LE(test::max_abs_difference(rounded_c, products.exact_c), 70 * 0.5 / 127);
  EXPECT_GT(test::max_abs_difference(rounded_c, products.exact_c), 0);
}

TEST(GroupedMatmul, GroupsBeyondTheRowsAreAnError) {
  TestRun run;
  Products<float> products;
  products.offsets[kGroups] = kRows + 1;
  EXPECT_THROW(
      grouped_matmul(run, Transpose::kNT, products.a, products.w, products.offsets, products.c),
      Error);
}

}  // namespace
}  // namespace atl::ops
