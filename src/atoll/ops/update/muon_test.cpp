#include "atoll/ops/update/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/testing.h"
#include "atoll/ops/update/ref_muon.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

struct Size {
  std::int64_t rows, cols;
};
constexpr Size kSizes[] = {{1, 1}, {1, 9}, {9, 1}, {6, 17}, {17, 6}, {40, 40}, {33, 130}};

template <typename T>
OwnedTensor<T> transposed(const OwnedTensor<T>& x) {
  OwnedTensor<T> result({x.shape.dim(1), x.shape.dim(0)});
  for (std::int64_t r = 0; r < x.shape.dim(0); ++r) {
    for (std::int64_t c = 0; c < x.shape.dim(1); ++c) {
      result[c * x.shape.dim(0) + r] = x[r * x.shape.dim(1) + c];
    }
  }
  return result;
}

template <typename T>
OwnedTensor<T> orthogonal(Run& run, OwnedTensor<T> x) {
  OwnedTensor<T> y(x.shape);
  orthogonalize(run, x, y);
  return y;
}

// The polynomial that each of five steps applies to every singular value.
double follow(double s) {
  for (int i = 0; i < 5; ++i) {
    s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  }
  return s;
}

TEST(Orthogonalize, TakesEachSingularValueThroughThePolynomial) {
  TestRun run;
  // Of a diagonal matrix they are its elements, over the norm.
  const double values[] = {3, -2, 0.5, 0.01, 0};
  OwnedTensor<double> x({5, 8});
  double norm = 0;
  for (std::int64_t i = 0; i < 5; ++i) {
    x[i * 8 + i] = values[i];
    norm += values[i] * values[i];
  }
  norm = std::sqrt(norm);
  for (const bool tall : {false, true}) {
    const auto y = tall ? transposed(orthogonal(run, transposed(x))) : orthogonal(run, x);
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < 8; ++c) {
        const double expected = r == c ? follow(values[r] / norm) : 0;
        EXPECT_NEAR(y[r * 8 + c], expected, 1e-12) << r << " " << c;
      }
    }
  }
}

TEST(Orthogonalize, ComesNearAnOrthogonalMatrix) {
  TestRun run;
  auto y = orthogonal(run, random_tensor<double>({12, 50}, 1));
  OwnedTensor<double> gram({12, 12});
  matmul(run, Transpose::kNT, y, y, gram);
  for (std::int64_t i = 0; i < 12; ++i) {
    // Squares of singular values, which the polynomial leaves between 0.68 and 1.21.
    EXPECT_GT(gram[i * 12 + i], 0.68 * 0.68);
    EXPECT_LT(gram[i * 12 + i], 1.21 * 1.21);
  }
}

// A step multiplies an error in a small singular value by up to 3.4445, five by 485; what each adds
// of its own is (k + 8) roundings of 2^-24 for sums of k products, and errors of many roundings
// partly cancel: a tenth of that bound is what a right f32 path stays well within.
TEST(Orthogonalize, MatchesDoubleInF32) {
  TestRun run;
  for (const Size& size : kSizes) {
    const Shape shape = {size.rows, size.cols};
    const auto fast = orthogonal(run, random_tensor<float>(shape, 3));
    const auto exact = orthogonal(run, random_tensor<double>(shape, 3));
    const double k = static_cast<double>(std::max(size.rows, size.cols));
    EXPECT_LE(test::max_abs_difference(fast, exact), 485 * 0.1 * (k + 8) * 0x1p-24)
        << size.rows << " x " << size.cols;
  }
}

TEST(Orthogonalize, IsBlindToScaleAndKeepsZeroZero) {
  TestRun run;
  auto x = random_tensor<float>({7, 20}, 1);
  const auto y = orthogonal(run, x);
  for (float& value : x.values) value *= 0x1p-20F;
  EXPECT_EQ(orthogonal(run, x), y) << "a power of two";
  EXPECT_EQ(orthogonal(run, OwnedTensor<float>({7, 20})), OwnedTensor<float>({7, 20}));
}

TEST(Orthogonalize, ThreadCountChangesNoBitAndTheScratchSuffices) {
  // Wide enough for packed products.
  for (const Size& size : {Size{513, 640}, Size{640, 513}}) {
    const Shape shape = {size.rows, size.cols};
    const std::size_t scratch = orthogonalize_scratch_bytes({Dtype::kF32, shape});
    TestRun one(1, scratch);
    const auto expected = orthogonal(one, random_tensor<float>(shape, 3));
    for (const int threads : {2, 3}) {
      TestRun run(threads, scratch);
      EXPECT_EQ(orthogonal(run, random_tensor<float>(shape, 3)), expected);
    }
    TestRun tight(1, scratch - kArenaAlignment);
    EXPECT_THROW(orthogonal(tight, random_tensor<float>(shape, 3)), Error);
  }
}

TEST(MuonMomentum, MatchesRefInDouble) {
  TestRun run;
  for (const bool nesterov : {false, true}) {
    for (const std::int64_t n : {0, 1, 17, 16384 + 5}) {
      const MuonMomentum numbers = {.nesterov = nesterov, .grad_scale = 0.5};
      auto grad = random_tensor<float>({n}, 1);
      auto exact_grad = grad.as<double>();
      OwnedTensor<float> m({n}), direction({n});
      OwnedTensor<double> exact_m({n}), exact_direction({n});
      for (int step = 0; step < 5; ++step) {
        muon_momentum(run, numbers, grad, m, direction);
        ref::muon_momentum<double>(numbers, exact_grad, exact_m, exact_direction);
      }
      // m is below 0.15: four roundings of 2^-26 a step; the direction adds three.
      EXPECT_LE(test::max_abs_difference(m, exact_m), 5 * 4 * 0x1p-26);
      EXPECT_LE(test::max_abs_difference(direction, exact_direction), 5 * 4 * 0x1p-26);
    }
  }
}

TEST(ApplyDirection, StepsAlongItAndDecays) {
  TestRun run;
  for (const std::int64_t n : {1, 17}) {
    OwnedTensor<float> param({n}, 2.0F);
    OwnedTensor<float> direction({n}, 4.0F);
    apply_direction(run, 0.25, 0.125, param.view(), direction);
    EXPECT_EQ(param, OwnedTensor<float>({n}, 0.75F));  // 2 - (1 + 0.25)
  }
}

}  // namespace
}  // namespace atl::ops
