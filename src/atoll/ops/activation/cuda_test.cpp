// Activations on the fake GPU against ref in double, and the functions they are made of.

#include "atoll/ops/activation/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/activation/ref.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

TEST(CudaNumbers, ExpAndLogAreRightToTheirLastUnits) {
  for (float x = -100; x < 88; x += 0.0371F) {
    const double exact = std::exp(static_cast<double>(x));
    // Below 2^-126 there are fewer digits: half of the smallest number besides.
    EXPECT_NEAR(cuda::exp_f32(x), exact, 2 * 0x1p-23 * exact + 0x1p-149) << x;
  }
  for (float x = -87.3F; x < 88.3F; x += 0.0371F) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_NEAR(cuda::exp_falling(x), exact, 2 * 0x1p-23 * exact) << x;
  }
  EXPECT_EQ(cuda::exp_falling(0), 1.0F);
  for (const float x : {-87.31F, -200.0F, -1e30F, -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(cuda::exp_falling(x), 0.0F) << x;
  }
  EXPECT_TRUE(std::isnan(cuda::exp_falling(std::nanf(""))));
  EXPECT_EQ(cuda::exp_f32(0), 1.0F);
  EXPECT_EQ(cuda::exp_f32(-200), 0.0F);
  EXPECT_EQ(cuda::exp_f32(200), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(cuda::exp_f32(std::nanf(""))));
  for (float x = 1e-3F; x < 1e6F; x *= 1.0037F) {
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(cuda::log_f32(x), exact, 0x1p-23 * std::max(1.0, std::abs(exact))) << x;
  }
  EXPECT_EQ(cuda::log_f32(1), 0.0F);
  for (const float sign : {1.0F, -1.0F}) {
    EXPECT_TRUE(std::isnan(cuda::log_f32(std::copysign(std::nanf(""), sign))));
  }
}

TEST(CudaNumbers, ErrorFunctionsAreRightToTheirBounds) {
  EXPECT_EQ(cuda::sigmoid_f32(-100), 0.0F);
  EXPECT_EQ(cuda::sigmoid_f32(100), 1.0F);
  EXPECT_TRUE(std::isnan(cuda::sigmoid_f32(std::nanf(""))));
  for (float x = -6; x < 9; x += 0.0137F) {
    const double wide = x;
    const double exact = 1 / (1 + std::exp(-wide));
    EXPECT_NEAR(cuda::sigmoid_f32(x), exact, 3 * 0x1p-23 * exact) << x;
    // The fit's own error, and x^2 rounded in the exponent.
    EXPECT_NEAR(cuda::erfc_f32(x) / std::erfc(wide), 1, 2e-7 + 0x1p-23 * (2 + wide * wide)) << x;
  }
}

TEST(CudaNumbers, TanhIsRightToItsBoundOnBothSidesOfWhereItChangesFormula) {
  EXPECT_EQ(cuda::tanh_f32(0), 0.0F);
  EXPECT_EQ(cuda::tanh_f32(1e30F), 1.0F);
  EXPECT_EQ(cuda::tanh_f32(-1e30F), -1.0F);
  EXPECT_TRUE(std::isnan(cuda::tanh_f32(std::nanf(""))));
  for (float x = 1e-6F; x < 12; x *= 1.003F) {
    const double exact = std::tanh(static_cast<double>(x));
    EXPECT_NEAR(cuda::tanh_f32(x), exact, 3 * 0x1p-23 * exact) << x;
    EXPECT_EQ(cuda::tanh_f32(-x), -cuda::tanh_f32(x));
  }
}

template <typename T>
struct Swiglu {
  OwnedTensor<T> gate_up, dh, h, dgate_up, h_again, dgate_up_alone;
  bool operator==(const Swiglu&) const = default;
};

// Sums of a handful of operations, beyond the one rounding to T.
template <typename T>
double error(const OwnedTensor<T>& got, const OwnedTensor<double>& exact) {
  if constexpr (std::is_same_v<T, Bf16>)
    return test::max_error_beyond_rounding(got, exact);
  else
    return test::max_abs_difference(got, exact);
}
constexpr double kFewOperations = 40 * 0x1p-23;

template <typename T>
void check_swiglu() {
  for (const auto& [rows, width] : {std::pair{1, 1}, {3, 17}, {5, 64}, {2, 1032}}) {
    const Swiglu<T> start{random_tensor<T>({rows, 2 * width}, 1, 4),
                          random_tensor<T>({rows, width}, 2),
                          OwnedTensor<T>({rows, width}),
                          OwnedTensor<T>({rows, 2 * width}),
                          OwnedTensor<T>({rows, width}),
                          OwnedTensor<T>({rows, 2 * width})};
    const auto got = test::in_every_order(
        start,
        [](Gpu& gpu, Swiglu<T>& s) {
          const Tensor gate_up = gpu(s.gate_up);
          swiglu_forward(gpu.run, gate_up, gpu(s.h));
          swiglu_backward(gpu.run, gate_up, gpu(s.dh), gpu(s.dgate_up), gpu(s.h_again));
          swiglu_backward(gpu.run, gate_up, gpu(s.dh), gpu(s.dgate_up_alone));
        },
        kDiffers);
    auto gate_up = start.gate_up.template as<double>(), dh = start.dh.template as<double>();
    OwnedTensor<double> h({rows, width}), dgate_up({rows, 2 * width});
    ref::swiglu_backward<double>(gate_up, dh, dgate_up, h);
    EXPECT_LE(error(got.h, h), kFewOperations) << rows << " x " << width;
    EXPECT_LE(error(got.dgate_up, dgate_up), kFewOperations) << rows << " x " << width;
    EXPECT_EQ(got.h, got.h_again);
    EXPECT_EQ(got.dgate_up, got.dgate_up_alone);
  }
}

TEST(CudaSwiglu, MatchesRefInDouble) {
  check_swiglu<float>();
  check_swiglu<Bf16>();
}

template <typename T>
void check_geglu(Gelu kind) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {3, 17}, {5, 64}, {2, 1032}}) {
    const Swiglu<T> start{random_tensor<T>({rows, 2 * width}, 1, 4),
                          random_tensor<T>({rows, width}, 2),
                          OwnedTensor<T>({rows, width}),
                          OwnedTensor<T>({rows, 2 * width}),
                          OwnedTensor<T>({rows, width}),
                          OwnedTensor<T>({rows, 2 * width})};
    const auto got = test::in_every_order(
        start,
        [kind](Gpu& gpu, Swiglu<T>& s) {
          const Tensor gate_up = gpu(s.gate_up);
          geglu_forward(gpu.run, kind, gate_up, gpu(s.h));
          geglu_backward(gpu.run, kind, gate_up, gpu(s.dh), gpu(s.dgate_up), gpu(s.h_again));
          geglu_backward(gpu.run, kind, gate_up, gpu(s.dh), gpu(s.dgate_up_alone));
        },
        kDiffers);
    auto gate_up = start.gate_up.template as<double>(), dh = start.dh.template as<double>();
    OwnedTensor<double> h({rows, width}), dgate_up({rows, 2 * width});
    ref::geglu_backward<double>(kind, gate_up, dh, dgate_up, h);
    EXPECT_LE(error(got.h, h), kFewOperations) << rows << " x " << width;
    EXPECT_LE(error(got.dgate_up, dgate_up), kFewOperations) << rows << " x " << width;
    EXPECT_EQ(got.h, got.h_again);
    EXPECT_EQ(got.dgate_up, got.dgate_up_alone);
  }
}

TEST(CudaGeglu, MatchesRefInDouble) {
  for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
    check_geglu<float>(kind);
    check_geglu<Bf16>(kind);
  }
}

TEST(CudaSwiglu, MovesEachElementOnce) {
  Gpu gpu;
  OwnedTensor<Bf16> gate_up = random_tensor<Bf16>({4, 512}, 1), h({4, 256}), dh({4, 256});
  OwnedTensor<Bf16> dgate_up({4, 512});
  const Tensor in = gpu(gate_up), out = gpu(h);
  swiglu_forward(gpu.run, in, out);
  swiglu_backward(gpu.run, in, gpu(dh), gpu(dgate_up), out);
  gpu.finish();
  const std::uint64_t bytes = 4 * 256 * 2;  // of h
  EXPECT_EQ(gpu.device().totals().at("swiglu_forward").traffic.read, 2 * bytes);
  EXPECT_EQ(gpu.device().totals().at("swiglu_forward").traffic.written, bytes);
  EXPECT_EQ(gpu.device().totals().at("swiglu_backward").traffic.read, 3 * bytes);
  EXPECT_EQ(gpu.device().totals().at("swiglu_backward").traffic.written, 3 * bytes);
}

template <typename T>
struct GeluOperands {
  OwnedTensor<T> x, dy, y, dx, y_again;
  bool operator==(const GeluOperands&) const = default;
};

template <typename T>
void check_gelu(Gelu kind) {
  for (const std::int64_t size : {1, 31, 520, 1033}) {
    const GeluOperands<T> start{random_tensor<T>({size}, 1, 6), random_tensor<T>({size}, 2),
                                OwnedTensor<T>({size}), OwnedTensor<T>({size}),
                                OwnedTensor<T>({size})};
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, GeluOperands<T>& s) {
          const Tensor x = gpu(s.x), dx = gpu(s.dx);
          gelu_forward(gpu.run, kind, x, gpu(s.y));
          gelu_backward(gpu.run, kind, x, gpu(s.dy), dx);
          gelu_backward(gpu.run, kind, x, gpu(s.dy), dx, gpu(s.y_again));
        },
        kDiffers);
    auto x = start.x.template as<double>(), dy = start.dy.template as<double>();
    OwnedTensor<double> y({size}), dx({size});
    ref::gelu_forward<double>(kind, x, y);
    ref::gelu_backward<double>(kind, x, dy, dx);
    EXPECT_LE(error(got.y, y), kFewOperations) << size;
    EXPECT_LE(error(got.dx, dx), kFewOperations) << size;
    EXPECT_EQ(got.y, got.y_again);
  }
}

// Their squares are infinite.
TEST(CudaGelu, OfTheLargestNumbersIsThatOfRef) {
  for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
    Gpu gpu;
    OwnedTensor<float> x({4}), dy({4}, 1.0F), y({4}), dx({4});
    x.values = {2e19F, -2e19F, 3e38F, -3e38F};
    const Tensor from = gpu(x);
    gelu_forward(gpu.run, kind, from, gpu(y));
    gelu_backward(gpu.run, kind, from, gpu(dy), gpu(dx));
    gpu.finish();
    EXPECT_THAT(y.values, testing::ElementsAre(2e19F, 0.0F, 3e38F, 0.0F));
    EXPECT_THAT(dx.values, testing::ElementsAre(1.0F, 0.0F, 1.0F, 0.0F));
  }
}

template <typename T>
struct GeluColumns {
  OwnedTensor<T> x, dy, dx, y;
  OwnedTensor<float> dbias;
  bool operator==(const GeluColumns&) const = default;
};

// The sums of columns in the pass that makes them: as of a pass of their own over what is stored.
template <typename T>
void check_gelu_columns() {
  for (const auto& [rows, width] : {std::pair{1, 3}, {70, 33}, {130, 264}}) {
    const GeluColumns<T> start{random_tensor<T>({rows, width}, 1, 6),
                               random_tensor<T>({rows, width}, 2), OwnedTensor<T>({rows, width}),
                               OwnedTensor<T>({rows, width}), random_tensor<float>({width}, 3)};
    const auto backward = [](bool together) {
      return [together](Gpu& gpu, GeluColumns<T>& s) {
        Run run = gpu.run;
        const Tensor x = gpu(s.x), dx = gpu(s.dx), dbias = gpu(s.dbias);
        const Tensor sums = run.take_scratch(column_sums_spec(x.spec()));
        gelu_backward(run, Gelu::kTanh, x, gpu(s.dy), dx, gpu(s.y), together ? sums : Tensor());
        together ? add_column_sums(run, sums, dbias) : column_sum(run, dx, dbias);
      };
    };
    const auto together = test::in_every_order(start, backward(true), kDiffers);
    GeluColumns<T> apart = start;
    Gpu gpu;
    backward(false)(gpu, apart);
    gpu.finish();
    EXPECT_TRUE(together == apart) << rows << " x " << width;
  }
}

TEST(CudaGelu, SumsOfColumnsAreThoseOfAPassOfTheirOwn) {
  check_gelu_columns<float>();
  check_gelu_columns<Bf16>();
}

TEST(CudaGelu, MatchesRefInDouble) {
  for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
    check_gelu<float>(kind);
    check_gelu<Bf16>(kind);
  }
}

}  // namespace
}  // namespace atl::ops
