#include "atoll/ops/implementations.h"

#include "atoll/ops/clamped_swiglu/clamped_swiglu.h"
#include "atoll/ops/clamped_swiglu/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct ClampedArgs {
  double limit;
  Tensor gate_up, dh, dgate_up, h;
};

constexpr Implementation<ClampedArgs> kForward[] = {
    {"ref", [](Run& run, const ClampedArgs& a) {
       return serve_any_storage(run, a.h.dtype(), [&]<typename T>(T) {
         ref::clamped_swiglu_forward<T>(run, a.limit, a.gate_up, a.h);
       });
     }}};

constexpr Implementation<ClampedArgs> kBackward[] = {
    {"ref", [](Run& run, const ClampedArgs& a) {
       return serve_any_storage(run, a.h.dtype(), [&]<typename T>(T) {
         ref::clamped_swiglu_backward<T>(run, a.limit, a.gate_up, a.dh, a.dgate_up, a.h);
       });
     }}};

void check(const char* op, const ClampedArgs& args) {
  ATOLL_CHECK(args.limit > 0, "{}: bounded by {}", op, args.limit);
  check_spec(op, args.h.spec().with_last(2 * args.h.dim(-1)), {args.gate_up});
}

}  // namespace

void clamped_swiglu_forward(Run& run, double limit, Tensor gate_up, Tensor h) {
  const char* op = "clamped_swiglu_forward";
  const ClampedArgs args = {limit, gate_up, {}, {}, h};
  check(op, args);
  dispatch<ClampedArgs>(op, kForward, run, args, cost_of({gate_up, h}));
}

void clamped_swiglu_backward(Run& run, double limit, Tensor gate_up, Tensor dh, Tensor dgate_up,
                             Tensor h) {
  const char* op = "clamped_swiglu_backward";
  const ClampedArgs args = {limit, gate_up, dh, dgate_up, h};
  check(op, args);
  check_spec(op, h.spec(), {dh});
  check_spec(op, gate_up.spec(), {dgate_up});
  dispatch<ClampedArgs>(op, kBackward, run, args, cost_of({gate_up, dh, dgate_up, h}));
}

}  // namespace atl::ops
