// Linears with DoRA: gradients against finite differences that hold the lengths of rows fixed, as
// PEFT does.

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/nn/linear.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr int kRows = 7, kIn = 5, kRank = 2, kAdapted = 5;
constexpr double kScale = 0.7;
// The adapted rows, as blocks {0, 3} and {5, 2} have them in order.
constexpr int kOrder[kAdapted] = {0, 1, 2, 5, 6};

Param param(const char* name, Shape shape) {
  Param made;
  made.name = name;
  made.spec = {Dtype::kF64, shape};
  return made;
}

// q and v of a fused weight whose k has none, and a bias.
Linear dora_linear() {
  Param weight = param("qkv.weight", {kRows, kIn});
  weight.frozen = true;
  Linear linear(std::move(weight), param("qkv.bias", {kRows}));
  linear.add_adapter(param("a", {2 * kRank, kIn}), param("b", {kAdapted, kRank}), {{0, 3}, {5, 2}},
                     kScale, param("m", {kAdapted}));
  return linear;
}

// Parameters of the bench as the layer visits them.
enum Place { kWeight, kBias, kA, kB, kMagnitude };

double* values(const LayerBench& bench, Place place) {
  return bench.params[place]->value.data<double>();
}

// |W[j] + s (B A)[j]| of the adapted rows.
std::vector<double> lengths(const LayerBench& bench) {
  std::vector<double> all;
  for (int k = 0; k < kAdapted; ++k) {
    double sum = 0;
    for (int i = 0; i < kIn; ++i) {
      double element = values(bench, kWeight)[kOrder[k] * kIn + i];
      for (int j = 0; j < kRank; ++j) {
        const int row_of_a = (k < 3 ? 0 : kRank) + j;
        element +=
            kScale * values(bench, kB)[k * kRank + j] * values(bench, kA)[row_of_a * kIn + i];
      }
      sum += element * element;
    }
    all.push_back(std::sqrt(sum));
  }
  return all;
}

// The largest error of a gradient, relative to its largest element. `holds`: lengths follow A and
// B, so that the gain stays as it is.
double error_of(LayerBench& bench, double* at, const double* analytic, std::int64_t count,
                bool holds) {
  constexpr double kStep = 1e-5;
  const std::vector<double> before = lengths(bench);
  const std::vector<double> m(values(bench, kMagnitude), values(bench, kMagnitude) + kAdapted);
  const auto loss_at = [&](double* element, double value) {
    const double saved = *element;
    *element = value;
    if (holds) {
      const std::vector<double> now = lengths(bench);
      for (int k = 0; k < kAdapted; ++k) {
        values(bench, kMagnitude)[k] = m[k] * now[k] / before[k];
      }
    }
    const double loss = bench.loss();
    *element = saved;
    if (holds) std::copy(m.begin(), m.end(), values(bench, kMagnitude));
    return loss;
  };
  double worst = 0;
  double largest = 1e-6;
  for (std::int64_t i = 0; i < count; ++i) {
    const double numeric =
        (loss_at(at + i, at[i] + kStep) - loss_at(at + i, at[i] - kStep)) / (2 * kStep);
    worst = std::max(worst, std::abs(numeric - analytic[i]));
    largest = std::max(largest, std::abs(numeric));
  }
  return worst / largest;
}

void expect_gradients(Linear& linear, bool training) {
  LayerBench bench(linear, {Dtype::kF64, {2, 3, kIn}});
  bench.run.run.training = training;
  const std::vector<double> x(bench.x.data<double>(), bench.x.data<double>() + 2 * 3 * kIn);
  bench.backward();
  std::copy(x.begin(), x.end(), bench.x.data<double>());
  EXPECT_LT(error_of(bench, bench.x.data<double>(), bench.dx.data<double>(), 2 * 3 * kIn, false),
            1e-7);
  for (const Place place : {kBias, kA, kB, kMagnitude}) {
    const Param& one = *bench.params[place];
    EXPECT_LT(error_of(bench, one.value.data<double>(), one.grad.data<double>(),
                       one.spec.shape.num_elements(), place == kA || place == kB),
              1e-7)
        << one.name;
  }
}

TEST(DoraLinear, GradientsMatchFiniteDifferences) {
  Linear linear = dora_linear();
  expect_gradients(linear, false);
}

TEST(DoraLinear, GradientsMatchFiniteDifferencesUnderDropout) {
  Linear linear = dora_linear();
  linear.drop_adapter_input(0.4, 1 << 15);
  expect_gradients(linear, true);
}

TEST(DoraLinear, RowsHaveTheTrainedLengths) {
  Linear linear = dora_linear();
  LayerBench bench(linear, {Dtype::kF64, {1, kIn, kIn}});
  double* x = bench.x.data<double>();  // the identity: y is the weight, transposed, and the bias
  for (int i = 0; i < kIn * kIn; ++i) x[i] = i % (kIn + 1) == 0 ? 1 : 0;
  linear.forward(bench.run, bench.pass());
  for (int k = 0; k < kAdapted; ++k) {
    double sum = 0;
    for (int i = 0; i < kIn; ++i) {
      const double element =
          bench.y.data<double>()[i * kRows + kOrder[k]] - values(bench, kBias)[kOrder[k]];
      sum += element * element;
    }
    EXPECT_NEAR(std::sqrt(sum), std::abs(values(bench, kMagnitude)[k]), 1e-12) << k;
  }
}

// Two adapters of other ranks, one of each block, are what one of both is.
TEST(DoraLinear, RowsOfOtherRanksHaveAdaptersOfTheirOwn) {
  Linear one = dora_linear();
  LayerBench together(one, {Dtype::kF64, {2, 3, kIn}});
  Param weight = param("qkv.weight", {kRows, kIn});
  weight.frozen = true;
  Linear two(std::move(weight), param("qkv.bias", {kRows}));
  two.add_adapter(param("a", {kRank, kIn}), param("b", {3, kRank}), {{0, 3}}, kScale,
                  param("m", {3}));
  two.add_adapter(param("a 2", {kRank, kIn}), param("b 2", {2, kRank}), {{5, 2}}, kScale,
                  param("m 2", {2}));
  LayerBench apart(two, {Dtype::kF64, {2, 3, kIn}});
  const auto copy = [&](int to, Place from, int begin) {
    const Tensor value = apart.params[to]->value;
    std::copy_n(values(together, from) + begin, value.num_elements(), value.data<double>());
  };
  copy(0, kWeight, 0);
  copy(1, kBias, 0);
  copy(2, kA, 0);
  copy(3, kB, 0);
  copy(4, kMagnitude, 0);
  copy(5, kA, kRank * kIn);
  copy(6, kB, 3 * kRank);
  copy(7, kMagnitude, 3);
  together.loss();
  apart.loss();
  for (std::int64_t i = 0; i < together.y.num_elements(); ++i) {
    EXPECT_NEAR(together.y.data<double>()[i], apart.y.data<double>()[i], 1e-12);
  }
  together.backward();
  apart.backward();
  for (std::int64_t i = 0; i < together.dx.num_elements(); ++i) {
    EXPECT_NEAR(together.dx.data<double>()[i], apart.dx.data<double>()[i], 1e-12);
  }
  const double* m = together.params[kMagnitude]->grad.data<double>();
  for (int k = 0; k < kAdapted; ++k) {
    const double* other = apart.params[k < 3 ? 4 : 7]->grad.data<double>();
    EXPECT_NEAR(m[k], other[k < 3 ? k : k - 3], 1e-12) << k;
  }
}

}  // namespace
}  // namespace atl::nn
