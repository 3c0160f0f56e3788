#include "atoll/ops/softcap/softcap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/softcap/ref.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr std::int64_t kSizes[] = {0, 1, 3, 17, 255, 2 * 16384 + 31};
constexpr double kCap = 1.5;            // random_tensor's numbers are about 1: some are capped
constexpr double kUnits = 8 * 0x1p-23;  // tanh to 4e-7, and three roundings

// The value and the gradient in double of f32 operands.
struct Exact {
  OwnedTensor<double> y, dx;
};

Exact exact_of(const OwnedTensor<float>& x, const OwnedTensor<float>& dy) {
  Exact exact{OwnedTensor<double>(x.shape), OwnedTensor<double>(x.shape)};
  OwnedTensor<double> wide_x(x.shape), wide_dy(x.shape);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    wide_x.values[i] = x.values[i];
    wide_dy.values[i] = dy.values[i];
  }
  ref::softcap_forward<double>(kCap, wide_x, exact.y);
  ref::softcap_backward<double>(kCap, exact.y, wide_dy, exact.dx);
  return exact;
}

void expect_near(const OwnedTensor<float>& got, const OwnedTensor<double>& exact) {
  for (std::size_t i = 0; i < exact.values.size(); ++i) {
    ASSERT_NEAR(got.values[i], exact.values[i], kUnits * std::max(1.0, std::abs(exact.values[i])))
        << i;
  }
}

TEST(Softcap, IsNearRefInDouble) {
  TestRun run;
  for (const std::int64_t n : kSizes) {
    auto x = random_tensor<float>({n}, 1);
    auto dy = random_tensor<float>({n}, 2);
    const Exact exact = exact_of(x, dy);
    OwnedTensor<float> y({n}), dx({n});
    softcap_forward(run, kCap, x, y);
    expect_near(y, exact.y);
    softcap_backward(run, kCap, y, dy, dx);
    expect_near(dx, exact.dx);
    softcap_forward(run, kCap, x, x);
    EXPECT_EQ(x, y) << "in place";
    softcap_backward(run, kCap, y, dy, dy);
    EXPECT_EQ(dy, dx) << "in place";
  }
}

TEST(Softcap, StaysBelowTheCapAndKeepsWhatIsSmall) {
  TestRun run;
  OwnedTensor<float> x({4}), y({4});
  x.values = {1e30F, -1e30F, 1e-20F, std::nanf("")};
  softcap_forward(run, 30, x, y);
  EXPECT_EQ(y.values[0], 30.0F);
  EXPECT_EQ(y.values[1], -30.0F);
  EXPECT_NEAR(y.values[2], 1e-20F, 1e-26F);
  EXPECT_TRUE(std::isnan(y.values[3]));
}

TEST(Softcap, GradientIsThatOfFiniteDifferences) {
  TestRun run;
  constexpr double kStep = 1e-6;
  auto x = random_tensor<double>({31}, 3);
  OwnedTensor<double> up({31}), down({31}), y({31}), dx({31}), dy({31}, 1.0);
  OwnedTensor<double> above = x, below = x;
  for (double& value : above.values) value += kStep;
  for (double& value : below.values) value -= kStep;
  softcap_forward(run, kCap, above, up);
  softcap_forward(run, kCap, below, down);
  softcap_forward(run, kCap, x, y);
  softcap_backward(run, kCap, y, dy, dx);
  for (std::size_t i = 0; i < dx.values.size(); ++i) {
    EXPECT_NEAR(dx.values[i], (up.values[i] - down.values[i]) / (2 * kStep), 1e-8);
  }
}

struct Four {
  OwnedTensor<float> x, dy, y, dx;
  bool operator==(const Four&) const = default;
};

TEST(CudaSoftcap, IsNearRefInDouble) {
  for (const std::int64_t n : {1, 33, 5160}) {
    const Four start{random_tensor<float>({n}, 1), random_tensor<float>({n}, 2),
                     OwnedTensor<float>({n}), OwnedTensor<float>({n})};
    const Four got = test::in_every_order(
        start,
        [](Gpu& gpu, Four& s) {
          const Tensor y = gpu(s.y);
          softcap_forward(gpu.run, kCap, gpu(s.x), y);
          softcap_backward(gpu.run, kCap, y, gpu(s.dy), gpu(s.dx));
        },
        [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; });
    const Exact exact = exact_of(start.x, start.dy);
    expect_near(got.y, exact.y);
    expect_near(got.dx, exact.dx);
  }
}

}  // namespace
}  // namespace atl::ops
