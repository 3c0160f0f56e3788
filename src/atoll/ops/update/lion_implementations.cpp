#include "atoll/ops/update/lion.h"

#include "atoll/ops/serve.h"
#include "atoll/ops/update/cpu_lion.h"
#include "atoll/ops/update/cuda.h"
#include "atoll/ops/update/ref_lion.h"

namespace atl::ops {

namespace {

struct Args {
  LionStep step;
  UpdateTarget target;
  Tensor grad, m;
};

constexpr Implementation<Args> kLion[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32(run, a.target.compute(),
                        [&] { cpu::lion(run, a.step, a.target, a.grad, a.m); });
     }},
    {"cuda",
     [](Run& run, const Args& a) { return cuda::lion(run, a.step, a.target, a.grad, a.m); }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_float(run, a.target.compute(),
                              [&]<typename T>(T) { ref::lion<T>(a.step, a.target, a.grad, a.m); });
     }},
};

}  // namespace

void lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  ATOLL_CHECK(step.beta1 >= 0 && step.beta1 < 1 && step.beta2 >= 0 && step.beta2 < 1,
              "lion: beta1 {}, beta2 {}", step.beta1, step.beta2);
  check_update("lion", target, {grad, m});
  dispatch<Args>("lion", kLion, run, {step, target, grad, m},
                 cost_of({target.values, target.values, target.master, target.master, grad, m, m}));
}

}  // namespace atl::ops
