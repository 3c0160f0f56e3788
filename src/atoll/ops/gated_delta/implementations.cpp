#include "atoll/ops/implementations.h"

#include "atoll/ops/gated_delta/gated_delta.h"
#include "atoll/ops/gated_delta/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct DeltaArgs {
  const GatedDelta& in;
  Tensor states, y;
  const GatedDelta* gradients = nullptr;
};

constexpr Implementation<DeltaArgs> kForward[] = {
    {"ref", [](Run& run, const DeltaArgs& a) {
       return serve_any_float(run, a.y.dtype(), [&]<typename T>(T) {
         ref::gated_delta_forward<T>(run, a.in, a.states, a.y);
       });
     }}};

constexpr Implementation<DeltaArgs> kBackward[] = {
    {"ref", [](Run& run, const DeltaArgs& a) {
       return serve_any_float(run, a.y.dtype(), [&]<typename T>(T) {
         ref::gated_delta_backward<T>(run, a.in, a.states, a.y, *a.gradients);
       });
     }}};

void check(const char* op, const DeltaArgs& args) {
  const GatedDelta& in = args.in;
  ATOLL_CHECK(in.q.shape().rank() == 4 && in.v.shape().rank() == 4, "{}: {} and {}", op,
              in.q.spec().to_string(), in.v.spec().to_string());
  const Dtype dtype = args.y.dtype();
  const std::int64_t B = in.q.dim(0), T = in.q.dim(1), H = in.q.dim(2);
  check_spec(op, {dtype, {B, T, H, in.q.dim(3)}}, {in.q, in.k});
  check_spec(op, {dtype, {B, T, H, in.v.dim(3)}}, {in.v, args.y});
  check_spec(op, {dtype, {B, T, H}}, {in.g, in.beta});
  check_size(op, dtype, B * H * (T + 1) * in.q.dim(3) * in.v.dim(3), {args.states});
}

}  // namespace

void gated_delta_forward(Run& run, const GatedDelta& in, Tensor states, Tensor y) {
  const DeltaArgs args = {in, states, y};
  check("gated_delta_forward", args);
  dispatch<DeltaArgs>("gated_delta_forward", kForward, run, args, cost_of({in.q, in.v, states}));
}

void gated_delta_backward(Run& run, const GatedDelta& in, Tensor states, Tensor dy,
                          const GatedDelta& gradients) {
  const DeltaArgs args = {in, states, dy, &gradients};
  check("gated_delta_backward", args);
  dispatch<DeltaArgs>("gated_delta_backward", kBackward, run, args, cost_of({in.q, in.v, states}));
}

}  // namespace atl::ops
