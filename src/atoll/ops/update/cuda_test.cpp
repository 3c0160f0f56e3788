// Updates on the fake GPU: in f32 the bits of ref, and so in bf16, stochastic rounding included.

#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/update/ref_adamw.h"
#include "atoll/ops/update/ref_lion.h"
#include "atoll/ops/update/ref_sgd.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

template <typename T>
struct State {
  OwnedTensor<T> values;
  OwnedTensor<float> master, grad, m, v;
  bool operator==(const State&) const = default;
};

template <typename T>
State<T> make_state(std::int64_t size) {
  State<T> state{random_tensor<T>({size}, 1), random_tensor<float>({size}, 1),
                 random_tensor<float>({size}, 2), random_tensor<float>({size}, 3),
                 random_tensor<float>({size}, 4)};
  for (float& v : state.v.values) v = std::abs(v);
  return state;
}

// A target in the flat vector from an odd element on.
UpdateTarget make_target(Tensor values, Tensor master) {
  UpdateTarget target(values);
  target.master = master;
  target.first_element = 12345;
  target.rounding = rounding_stream(7, 3);
  return target;
}

// update(run, target, grad, m, v) on the GPU and expected(target, grad, m, v) by ref, for each kind
// of target.
template <typename T, bool kMasters, typename Update, typename Expected>
void check_kind(Update&& update, Expected&& expected) {
  for (const std::int64_t size : {1, 33, 1000}) {
    const State<T> start = make_state<T>(size);
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, State<T>& s) {
          const Tensor master = kMasters ? gpu(s.master) : Tensor();
          update(gpu.run, make_target(gpu(s.values), master), gpu(s.grad), gpu(s.m), gpu(s.v));
        },
        kDiffers);
    State<T> exact = start;
    expected(make_target(exact.values, kMasters ? exact.master.view() : Tensor()), exact.grad,
             exact.m, exact.v);
    EXPECT_EQ(got, exact) << size;
  }
}

template <typename Update, typename Expected>
void check(Update&& update, Expected&& expected) {
  check_kind<float, false>(update, expected);
  check_kind<Bf16, false>(update, expected);
  check_kind<Bf16, true>(update, expected);
}

TEST(CudaAdamW, GivesTheBitsOfRef) {
  const AdamWStep step = {.lr = 1e-2, .weight_decay = 0.1, .step = 3, .grad_scale = 0.7};
  check([&](atl::Run& run, const UpdateTarget& target, Tensor grad, Tensor m,
            Tensor v) { adamw(run, step, target, grad, m, v); },
        [&](const UpdateTarget& target, Tensor grad, Tensor m, Tensor v) {
          ref::adamw<float>(step, target, grad, m, v);
        });
}

TEST(CudaAdamW, MovesThirtyBytesForAParameterWithAMaster) {
  Gpu gpu;
  State<Bf16> s = make_state<Bf16>(1024);
  adamw(gpu.run, {.lr = 1e-2}, make_target(gpu(s.values), gpu(s.master)), gpu(s.grad), gpu(s.m),
        gpu(s.v));
  gpu.finish();
  const auto traffic = gpu.device().totals().at("adamw").traffic;
  EXPECT_EQ(traffic.read, 1024u * (4 + 4 + 4 + 4));
  EXPECT_EQ(traffic.written, 1024u * (4 + 4 + 4 + 2));
}

TEST(CudaLion, GivesTheBitsOfRef) {
  const LionStep step = {.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.7};
  check([&](atl::Run& run, const UpdateTarget& target, Tensor grad, Tensor m,
            Tensor) { lion(run, step, target, grad, m); },
        [&](const UpdateTarget& target, Tensor grad, Tensor m, Tensor) {
          ref::lion<float>(step, target, grad, m);
        });
}

TEST(CudaSgd, GivesTheBitsOfRef) {
  for (const double momentum : {0.0, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      const SgdStep step = {.lr = 1e-2,
                            .momentum = momentum,
                            .nesterov = nesterov,
                            .weight_decay = 0.1,
                            .grad_scale = 0.7};
      check([&](atl::Run& run, const UpdateTarget& target, Tensor grad, Tensor m,
                Tensor) { sgd(run, step, target, grad, momentum > 0 ? m : Tensor()); },
            [&](const UpdateTarget& target, Tensor grad, Tensor m, Tensor) {
              ref::sgd<float>(step, target, grad, momentum > 0 ? m : Tensor());
            });
    }
  }
}

}  // namespace
}  // namespace atl::ops
