#include "atoll/ops/packed/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

// A byte an element: (b - 128) / step.
class Bytes final : public PackedFormat {
 public:
  Bytes(std::int64_t rows, std::int64_t columns, float step)
      : rows_(rows), columns_(columns), step_(step) {}
  std::string_view name() const override { return "bytes"; }
  std::size_t bytes() const override { return static_cast<std::size_t>(rows_ * columns_); }
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    for (std::int64_t i = begin * columns_; i < end * columns_; ++i) {
      *out++ = static_cast<float>(std::to_integer<int>(packed[i]) - 128) / step_;
    }
  }

 private:
  std::int64_t rows_, columns_;
  float step_;
};

// A matrix of two parts, whose last part has smaller numbers, and the same as floats.
struct Packed {
  Packed(std::int64_t first, std::int64_t second, std::int64_t columns)
      : wide({first + second, columns}) {
    matrix.shape = wide.shape;
    matrix.append(first, std::make_shared<Bytes>(first, columns, 128.0F));
    if (second > 0) matrix.append(second, std::make_shared<Bytes>(second, columns, 512.0F));
    bytes = OwnedTensor<std::uint8_t>({static_cast<std::int64_t>(matrix.num_bytes())});
    const auto draws = test::random_tokens(bytes.shape, 256, 11);
    std::copy(draws.values.begin(), draws.values.end(), bytes.values.begin());
    matrix.bytes = bytes.view();
    for (const PackedPart& part : matrix.parts) {
      part.format->widen(matrix.data_of(part), 0, part.rows,
                         wide.values.data() + part.row_begin * columns);
    }
  }
  OwnedTensor<std::uint8_t> bytes;
  OwnedTensor<float> wide;
  PackedMatrix matrix;
};

// What k roundings of f32 can do to a sum of k products of magnitude 1 at most.
double tolerance(std::int64_t k) {
  return static_cast<double>(k) * static_cast<double>(k) * 0x1p-24;
}

OwnedTensor<double> product(const OwnedTensor<double>& x, const OwnedTensor<double>& w,
                            const OwnedTensor<double>& bias) {
  const std::int64_t m = x.shape.dim(0), n = w.shape.dim(0), k = w.shape.dim(1);
  OwnedTensor<double> y({m, n});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = bias[j];
      for (std::int64_t c = 0; c < k; ++c) sum += x[i * k + c] * w[j * k + c];
      y[i * n + j] = sum;
    }
  }
  return y;
}

OwnedTensor<double> transposed_product(const OwnedTensor<double>& dy,
                                       const OwnedTensor<double>& w) {
  const std::int64_t m = dy.shape.dim(0), n = w.shape.dim(0), k = w.shape.dim(1);
  OwnedTensor<double> dx({m, k});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t c = 0; c < k; ++c) dx[i * k + c] += dy[i * n + j] * w[j * k + c];
    }
  }
  return dx;
}

// Rows of 700 are widened 1495 at a time: the last matrix takes two tiles, and its parts meet
// within the second.
const std::vector<std::array<std::int64_t, 3>> kShapes = {
    {1, 0, 1}, {5, 3, 7}, {64, 32, 128}, {1600, 40, 700}};

TEST(Packed, ProductsAreThoseOfTheWidenedMatrix) {
  for (const auto& [first, second, k] : kShapes) {
    TestRun run;
    Packed w(first, second, k);
    const std::int64_t n = first + second;
    for (const std::int64_t m : {1, 3, 20}) {
      run.run.scratch = run.run.scratch.first(matmul_packed_scratch_bytes(m, w.matrix.shape));
      auto x = random_tensor<float>({m, k}, 3), bias = random_tensor<float>({n}, 4);
      OwnedTensor<float> y({m, n}, 77.0F);
      matmul_packed(run, x, w.matrix, y, bias);
      EXPECT_LT(
          max_abs_difference(y, product(x.as<double>(), w.wide.as<double>(), bias.as<double>())),
          tolerance(k + 1))
          << m << " " << n << " " << k;
      auto dy = random_tensor<float>({m, n}, 5);
      OwnedTensor<float> dx({m, k}, 77.0F);
      matmul_packed_backward(run, dy, w.matrix, dx);
      EXPECT_LT(max_abs_difference(dx, transposed_product(dy.as<double>(), w.wide.as<double>())),
                tolerance(n))
          << m << " " << n << " " << k;
      run.run.scratch = {static_cast<std::byte*>(run.scratch.data()), std::size_t{64} << 20};
    }
  }
}

// The operands are rounded before; the sum is f32, and rounded once at the end.
TEST(Packed, Bf16OnBothSidesIsRoundedOnce) {
  for (const auto& [first, second, k] : kShapes) {
    TestRun run;
    Packed w(first, second, k);
    const std::int64_t n = first + second, m = 5;
    auto x = random_tensor<Bf16>({m, k}, 3), bias = random_tensor<Bf16>({n}, 4);
    OwnedTensor<Bf16> y({m, n});
    matmul_packed(run, x, w.matrix, y, bias);
    const auto expected = product(x.as<double>(), w.wide.as<double>(), bias.as<double>());
    EXPECT_LT(max_error_beyond_rounding(y, expected), tolerance(k + 1)) << n << " " << k;
    auto dy = random_tensor<Bf16>({m, n}, 5);
    OwnedTensor<Bf16> dx({m, k});
    matmul_packed_backward(run, dy, w.matrix, dx);
    EXPECT_LT(
        max_error_beyond_rounding(dx, transposed_product(dy.as<double>(), w.wide.as<double>())),
        tolerance(n))
        << n << " " << k;
  }
}

TEST(Packed, RowsAreStableWhereTheRunSaysSo) {
  TestRun run;
  run.run.training = false;
  run.run.row_stable = true;
  Packed w(1600, 40, 700);
  const std::int64_t n = 1640, k = 700, m = 9;
  auto x = random_tensor<float>({m, k}, 3);
  OwnedTensor<float> all({m, n});
  matmul_packed(run, x, w.matrix, all);
  for (std::int64_t i = 0; i < m; ++i) {
    OwnedTensor<float> one({1, n});
    matmul_packed(run, x.view().rows(i, i + 1), w.matrix, one);
    EXPECT_TRUE(std::equal(one.values.begin(), one.values.end(), all.values.begin() + i * n)) << i;
  }
}

TEST(Packed, ThreadsChangeNoBit) {
  Packed w(1600, 40, 700);
  auto x = random_tensor<float>({20, 700}, 3), dy = random_tensor<float>({20, 1640}, 4);
  std::vector<OwnedTensor<float>> products, gradients;
  for (const int threads : {1, 3}) {
    TestRun run(threads);
    matmul_packed(run, x, w.matrix, products.emplace_back(Shape{20, 1640}));
    matmul_packed_backward(run, dy, w.matrix, gradients.emplace_back(Shape{20, 700}));
  }
  EXPECT_EQ(products[0], products[1]);
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Packed, LooksRowsUp) {
  TestRun run;
  Packed table(5, 3, 7);
  OwnedTensor<std::int32_t> tokens({2, 3});
  tokens.values = {7, 0, 4, 5, 5, 1};
  OwnedTensor<float> y({2, 3, 7});
  OwnedTensor<Bf16> narrow({2, 3, 7});
  embedding_packed(run, tokens, table.matrix, y);
  embedding_packed(run, tokens, table.matrix, narrow);
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    for (std::int64_t c = 0; c < 7; ++c) {
      EXPECT_EQ(y[i * 7 + c], table.wide[tokens[i] * 7 + c]);
      EXPECT_EQ(narrow[i * 7 + c], to_bf16(table.wide[tokens[i] * 7 + c]));
    }
  }
  tokens[4] = 8;
  EXPECT_THROW(embedding_packed(run, tokens, table.matrix, y), Error);
}

}  // namespace
}  // namespace atl::ops
