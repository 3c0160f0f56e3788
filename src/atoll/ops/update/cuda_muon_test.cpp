// Muon on the fake GPU: the bits of ref where an element is rounded once, and an orthogonal matrix
// within what f32 explains, of which the host is told nothing before it is there.

#include "atoll/ops/update/muon.h"

#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/update/ref_muon.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

struct Moments {
  OwnedTensor<float> grad, m, direction;
  bool operator==(const Moments&) const = default;
};

TEST(CudaMuon, MomentumGivesTheBitsOfRef) {
  for (const bool nesterov : {false, true}) {
    for (const std::int64_t n : {1, 33, 1000}) {
      const MuonMomentum numbers = {.nesterov = nesterov, .grad_scale = 0.7};
      const Moments start{random_tensor<float>({n}, 1), random_tensor<float>({n}, 2),
                          OwnedTensor<float>({n}, 1e30F)};
      const auto got = test::in_every_order(
          start,
          [&](Gpu& gpu, Moments& s) {
            muon_momentum(gpu.run, numbers, gpu(s.grad), gpu(s.m), gpu(s.direction));
          },
          kDiffers);
      Moments exact = start;
      ref::muon_momentum<float>(numbers, exact.grad, exact.m, exact.direction);
      EXPECT_EQ(got, exact) << n;
    }
  }
}

template <typename T>
struct Step {
  OwnedTensor<T> values;
  OwnedTensor<float> master, direction;
  bool operator==(const Step&) const = default;
};

template <typename T, bool kMasters>
void check_step() {
  for (const std::int64_t n : {1, 33, 1000}) {
    const Step<T> start{random_tensor<T>({n}, 1), random_tensor<float>({n}, 1),
                        random_tensor<float>({n}, 2)};
    const auto target = [](Tensor values, Tensor master) {
      UpdateTarget result(values);
      result.master = master;
      result.first_element = 12345;
      result.rounding = rounding_stream(7, 3);
      return result;
    };
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Step<T>& s) {
          const Tensor values = gpu(s.values), master = kMasters ? gpu(s.master) : Tensor();
          apply_direction(gpu.run, 0.03, 0.01, target(values, master), gpu(s.direction));
        },
        kDiffers);
    Step<T> exact = start;
    ref::apply_direction<float>(0.03, 0.01,
                                target(exact.values, kMasters ? exact.master.view() : Tensor()),
                                exact.direction);
    EXPECT_EQ(got, exact) << n;
  }
}

TEST(CudaMuon, ApplyDirectionGivesTheBitsOfRef) {
  check_step<float, false>();
  check_step<Bf16, false>();
  check_step<Bf16, true>();
}

template <typename T>
struct Matrices {
  OwnedTensor<T> x, y;
  bool operator==(const Matrices&) const = default;
};

TEST(CudaMuon, OrthogonalizeMatchesDouble) {
  // The last is of more than one block of squares.
  for (const Shape shape :
       {Shape{1, 1}, Shape{1, 9}, Shape{17, 6}, Shape{33, 130}, Shape{9, 8000}}) {
    const Matrices<float> start{random_tensor<float>(shape, 3), OwnedTensor<float>(shape, 1e30F)};
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Matrices<float>& s) {
          const Tensor x = gpu(s.x), y = gpu(s.y);
          gpu.run.scratch = gpu.run.scratch.first(orthogonalize_scratch_bytes(x.spec()));
          orthogonalize(gpu.run, x, y);
        },
        kDiffers, /*has_products=*/true);
    Matrices<double> exact{start.x.as<double>(), OwnedTensor<double>(shape)};
    test::TestRun host;
    orthogonalize(host, exact.x, exact.y);
    // As on the host; see Orthogonalize.MatchesDoubleInF32.
    const auto k = static_cast<double>(std::max(shape.dim(0), shape.dim(1)));
    EXPECT_LE(test::max_abs_difference(got.y, exact.y), 485 * 0.1 * (k + 8) * 0x1p-24)
        << shape.to_string();
  }
}

TEST(CudaMuon, OrthogonalizeKeepsZeroZero) {
  Gpu gpu;
  OwnedTensor<float> x({7, 20}), y({7, 20}, 1e30F);
  orthogonalize(gpu.run, gpu(x), gpu(y));
  gpu.finish();
  EXPECT_EQ(y, OwnedTensor<float>({7, 20}));
}

}  // namespace
}  // namespace atl::ops
