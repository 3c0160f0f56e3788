#include "atoll/ops/update/adamw.h"

#include "atoll/ops/serve.h"
#include "atoll/ops/update/cpu_adamw.h"
#include "atoll/ops/update/cuda.h"
#include "atoll/ops/update/ref_adamw.h"

namespace atl::ops {

namespace {

struct Args {
  AdamWStep step;
  UpdateTarget target;
  Tensor grad, m, v;
};

constexpr Implementation<Args> kAdamW[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32(run, a.target.compute(),
                        [&] { cpu::adamw(run, a.step, a.target, a.grad, a.m, a.v); });
     }},
    {"cuda",
     [](Run& run, const Args& a) { return cuda::adamw(run, a.step, a.target, a.grad, a.m, a.v); }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_float(run, a.target.compute(), [&]<typename T>(T) {
         ref::adamw<T>(a.step, a.target, a.grad, a.m, a.v);
       });
     }},
};

}  // namespace

void adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
           Tensor v) {
  ATOLL_CHECK(step.step >= 1 && step.beta1 >= 0 && step.beta1 < 1 && step.beta2 >= 0 &&
                  step.beta2 < 1 && step.eps > 0,
              "adamw: step {}, beta1 {}, beta2 {}, eps {}", step.step, step.beta1, step.beta2,
              step.eps);
  check_update("adamw", target, {grad, m, v});
  dispatch<Args>(
      "adamw", kAdamW, run, {step, target, grad, m, v},
      cost_of({target.values, target.values, target.master, target.master, grad, m, m, v, v}));
}

}  // namespace atl::ops
