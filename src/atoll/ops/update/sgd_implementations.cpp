#include "atoll/ops/update/sgd.h"

#include "atoll/ops/serve.h"
#include "atoll/ops/update/cpu_sgd.h"
#include "atoll/ops/update/cuda.h"
#include "atoll/ops/update/ref_sgd.h"

namespace atl::ops {

namespace {

struct Args {
  SgdStep step;
  UpdateTarget target;
  Tensor grad, m;
};

constexpr Implementation<Args> kSgd[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32(run, a.target.compute(),
                        [&] { cpu::sgd(run, a.step, a.target, a.grad, a.m); });
     }},
    {"cuda", [](Run& run, const Args& a) { return cuda::sgd(run, a.step, a.target, a.grad, a.m); }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_float(run, a.target.compute(),
                              [&]<typename T>(T) { ref::sgd<T>(a.step, a.target, a.grad, a.m); });
     }},
};

}  // namespace

void sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  const bool has_buffer = m.defined() || target.size() == 0;
  ATOLL_CHECK(
      step.momentum >= 0 && step.momentum < 1 && (step.momentum > 0 ? has_buffer : !m.defined()),
      "sgd: momentum {}, {} buffer", step.momentum, m.defined() ? "a" : "no");
  ATOLL_CHECK(!step.nesterov || step.momentum > 0, "sgd: Nesterov without momentum");
  check_update("sgd", target, {grad});
  if (m.defined()) check_update("sgd", target, {m});
  dispatch<Args>("sgd", kSgd, run, {step, target, grad, m},
                 cost_of({target.values, target.values, target.master, target.master, grad, m, m}));
}

}  // namespace atl::ops
