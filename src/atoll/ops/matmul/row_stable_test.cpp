// Run::row_stable: a row of a product has the same bits alone and among others.

#include <gtest/gtest.h>

#include <cstring>

#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

struct Sizes {
  std::int64_t n, k;
};
// Whole tiles, rests of tiles, and of vectors.
constexpr Sizes kSizes[] = {{64, 128}, {67, 131}, {3, 7}, {260, 1030}};
constexpr std::int64_t kCounts[] = {2, 3, 4, 5, 7, 9, 16, 33, 130};
constexpr std::int64_t kMostRows = 130;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

class RowStable : public test::EachTarget {
 protected:
  RowStable() { run.run.row_stable = true; }

  // product(a, c) of so many rows, against each row by itself.
  template <typename Product>
  void expect_rows_alone(OwnedTensor<float> a, std::int64_t n, Product product) {
    OwnedTensor<float> alone({kMostRows, n});
    for (std::int64_t i = 0; i < kMostRows; ++i) {
      product(a.view().rows(i, i + 1), alone.view().rows(i, i + 1));
    }
    for (const std::int64_t rows : kCounts) {
      for (const std::int64_t first : {std::int64_t{0}, kMostRows - rows}) {
        OwnedTensor<float> c({rows, n}, std::nanf(""));
        product(a.view().rows(first, first + rows), c.view());
        EXPECT_TRUE(same_bits(c, alone.view().rows(first, first + rows)))
            << rows << " rows from " << first << " on, n " << n;
      }
    }
  }

  TestRun run;
};

TEST_P(RowStable, ProductsWithWeightsOf32And16Bits) {
  for (const auto& [n, k] : kSizes) {
    const auto a = random_tensor<float>({kMostRows, k}, 1);
    auto bias = random_tensor<float>({n}, 3);
    auto b = random_tensor<float>({n, k}, 2);
    auto narrow = random_tensor<Bf16>({n, k}, 2);
    expect_rows_alone(a, n,
                      [&](Tensor x, Tensor y) { matmul(run, Transpose::kNT, x, b, y, bias); });
    expect_rows_alone(a, n,
                      [&](Tensor x, Tensor y) { matmul(run, Transpose::kNT, x, narrow, y, bias); });
  }
}

TEST_P(RowStable, ProductsWithInt8Weights) {
  for (const auto& [n, k] : kSizes) {
    auto b = random_tensor<float>({n, k}, 2);
    const Spec values = int8_values_spec({n, k}), scales = int8_scales_spec({n, k});
    OwnedTensor<std::uint8_t> value_bytes(values.shape);
    OwnedTensor<float> factors(scales.shape);
    const Int8Matrix w = {value_bytes.view(), factors.view()};
    round_to_int8(run, b, w);
    expect_rows_alone(random_tensor<float>({kMostRows, k}, 1), n,
                      [&](Tensor x, Tensor y) { matmul_int8(run, x, w, y); });
  }
}

TEST_P(RowStable, ProductsOfGroups) {
  constexpr std::int64_t kN = 67, kK = 131;
  auto b = random_tensor<float>({2 * kN, kK}, 2);
  expect_rows_alone(random_tensor<float>({kMostRows, kK}, 1), kN, [&](Tensor x, Tensor y) {
    OwnedTensor<std::int32_t> offsets({3});
    offsets[1] = 0;  // all rows in the second group
    offsets[2] = static_cast<std::int32_t>(x.dim(0));
    grouped_matmul(run, Transpose::kNT, x, b, offsets, y);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RowStable, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         test::target_name);

}  // namespace
}  // namespace atl::ops
