#include <gtest/gtest.h>

#include "atoll/ops/norm/norm.h"
#include "atoll/ops/norm/ref_qk_norm.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

const RmsScale kScale = {1e-6, 0.5};

// All operands of one call on B sequences of T rows.
template <typename T>
struct QkNorm {
  QkNorm(HeadLayout layout, std::int64_t B, std::int64_t rows)
      : heads(layout),
        x(random_tensor<T>({B, rows, layout.qkv_width()}, 1)),
        q_weight(random_tensor<T>({layout.head_dim}, 2)),
        k_weight(random_tensor<T>({layout.head_dim}, 3)),
        dy(random_tensor<T>({B, rows, layout.qkv_width()}, 4)),
        y({B, rows, layout.qkv_width()}, std::numeric_limits<T>::quiet_NaN()),
        rstd({B, rows, layout.num_heads + layout.num_kv_heads}),
        dx(y),
        dweights({2, layout.head_dim}, std::numeric_limits<T>::quiet_NaN()) {}

  void forward(Run& run) { qk_norm_forward(run, heads, kScale, x, q_weight, k_weight, y, rstd); }
  void backward(Run& run) {
    qk_norm_backward(run, heads, kScale, x, q_weight, k_weight, rstd, dy, dx, dweights);
  }

  HeadLayout heads;
  OwnedTensor<T> x, q_weight, k_weight, dy, y, rstd, dx, dweights;
};

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
};
const Case kCases[] = {{{1, 1, 1}, 1, 1},  {{2, 1, 6}, 2, 5},    {{4, 2, 32}, 1, 37},
                       {{3, 3, 64}, 2, 9}, {{2, 1, 80}, 3, 7},   {{6, 2, 128}, 1, 20},
                       {{2, 2, 17}, 1, 3}, {{2, 1, 16}, 1, 1100}};

// A sum of n products of magnitude up to m rounds, as a random walk, by sqrt(n) eps m; what else
// happens to an element is ten operations.
double tolerance(std::int64_t n) {
  return 0x1p-23 * (10 + 2 * std::sqrt(static_cast<double>(n)));
}

template <typename T>
double error(const OwnedTensor<float>& fast, const OwnedTensor<T>& exact) {
  return test::max_abs_difference(fast, exact) / std::max(1.0, test::max_abs(exact));
}

TEST(QkNorm, MatchesRefInDouble) {
  TestRun run;
  for (const Case& c : kCases) {
    QkNorm<float> fast(c.heads, c.B, c.T);
    QkNorm<double> exact(c.heads, c.B, c.T);
    fast.forward(run);
    fast.backward(run);
    ref::qk_norm_forward<double>(c.heads, kScale, exact.x, exact.q_weight, exact.k_weight, exact.y,
                                 exact.rstd);
    ref::qk_norm_backward<double>(c.heads, kScale, exact.x, exact.q_weight, exact.k_weight,
                                  exact.rstd, exact.dy, exact.dx, exact.dweights);
    const std::string name = fmt::format("head_dim {} B {} T {}", c.heads.head_dim, c.B, c.T);
    const double bound = std::max(1.0, test::max_abs(exact.rstd)) * tolerance(c.heads.head_dim);
    EXPECT_LE(error(fast.y, exact.y), bound) << name;
    EXPECT_LE(error(fast.rstd, exact.rstd), bound) << name;
    EXPECT_LE(error(fast.dx, exact.dx), bound) << name;
    EXPECT_LE(error(fast.dweights, exact.dweights),
              bound + tolerance(c.B * c.T * c.heads.num_heads))
        << name;
  }
}

TEST(QkNorm, IsAnRmsNormOfEachHeadAndLeavesValuesAlone) {
  TestRun run;
  QkNorm<double> norm({3, 2, 4}, 2, 3);
  norm.forward(run);
  for (std::int64_t row = 0; row < 6; ++row) {
    for (std::int64_t head = 0; head < 7; ++head) {
      const std::int64_t at = row * norm.heads.qkv_width() + head * 4;
      double mean = 0;
      for (std::int64_t i = 0; i < 4; ++i) mean += norm.x[at + i] * norm.x[at + i] / 4;
      for (std::int64_t i = 0; i < 4; ++i) {
        const double weight = head < 3 ? norm.q_weight[i] : norm.k_weight[i];
        const double expected =
            norm.x[at + i] * (kScale.weight_offset + weight) / std::sqrt(mean + kScale.eps);
        EXPECT_NEAR(norm.y[at + i], head < 5 ? expected : norm.x[at + i], head < 5 ? 1e-14 : 0);
      }
    }
  }
}

TEST(QkNorm, GradientsMatchFiniteDifferences) {
  TestRun run;
  QkNorm<double> norm({2, 1, 5}, 2, 3);
  norm.forward(run);
  norm.backward(run);
  const auto loss = [&] {
    norm.forward(run);
    return test::dot(norm.dy, norm.y);
  };
  // As for the norms: 30 terms of order 1 and a third derivative below 1e3.
  const double tolerance = 1e-7;
  EXPECT_LE(test::max_relative_error(norm.dx, test::finite_difference(norm.x, loss)), tolerance);
  const auto dq = test::finite_difference(norm.q_weight, loss);
  const auto dk = test::finite_difference(norm.k_weight, loss);
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(norm.dweights[i], dq[i], tolerance * test::max_abs(dq));
    EXPECT_NEAR(norm.dweights[5 + i], dk[i], tolerance * test::max_abs(dk));
  }
}

TEST(QkNorm, ThreadCountChangesNoBit) {
  TestRun serial(1);
  QkNorm<float> one({4, 2, 40}, 3, 111);
  one.forward(serial);
  one.backward(serial);
  for (const int num_threads : {2, 3}) {
    TestRun run(num_threads);
    QkNorm<float> many({4, 2, 40}, 3, 111);
    many.forward(run);
    many.backward(run);
    EXPECT_TRUE(many.y == one.y && many.rstd == one.rstd && many.dx == one.dx &&
                many.dweights == one.dweights)
        << num_threads;
  }
}

TEST(QkNorm, BackwardMayWriteOverItsGradientAndNeedsNoMoreScratchThanPlanned) {
  const HeadLayout heads = {3, 1, 33};
  QkNorm<float> apart(heads, 2, 50);
  QkNorm<float> in_place(heads, 2, 50);
  TestRun run(2, qk_norm_scratch_bytes(heads, apart.x.view().spec()));
  apart.forward(run);
  apart.backward(run);
  in_place.rstd = apart.rstd;
  qk_norm_backward(run, heads, kScale, in_place.x, in_place.q_weight, in_place.k_weight,
                   in_place.rstd, in_place.dy, in_place.dy, in_place.dweights);
  EXPECT_EQ(in_place.dy, apart.dx);
  EXPECT_EQ(in_place.dweights, apart.dweights);
}

TEST(QkNorm, RefusesOperandsThatDoNotFit) {
  TestRun run;
  QkNorm<float> norm({2, 1, 8}, 1, 3);
  EXPECT_THROW(qk_norm_forward(run, norm.heads, kScale, norm.x, norm.q_weight, norm.k_weight,
                               norm.x, norm.rstd),
               Error);
  norm.heads.num_kv_heads = 2;
  EXPECT_THROW(norm.forward(run), Error);
  norm.heads.num_kv_heads = 1;
  norm.k_weight = OwnedTensor<float>({7});
  EXPECT_THROW(norm.backward(run), Error);
}

}  // namespace
}  // namespace atl::ops
