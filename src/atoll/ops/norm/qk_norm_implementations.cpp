#include "atoll/ops/norm/cpu_qk_norm.h"

#include "atoll/ops/norm/cuda.h"
#include "atoll/ops/norm/norm.h"
#include "atoll/ops/norm/ref_qk_norm.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// The operands of one call; those that a pass does not have are undefined.
struct Args {
  HeadLayout heads;
  RmsScale scale;
  Tensor x, q_weight, k_weight, y, rstd, dy, dx, dweights;
};

constexpr Implementation<Args> kForward[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::qk_norm_forward(run, a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.y, a.rstd);
       });
     }},
    {"cuda",
     [](Run& run, const Args& a) {
       return cuda::qk_norm_forward(run, a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.y,
                                    a.rstd);
     }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::qk_norm_forward<T>(a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.y, a.rstd);
       });
     }},
};

constexpr Implementation<Args> kBackward[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::qk_norm_backward(run, a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.rstd, a.dy,
                               a.dx, a.dweights);
       });
     }},
    {"cuda",
     [](Run& run, const Args& a) {
       return cuda::qk_norm_backward(run, a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.rstd,
                                     a.dy, a.dx, a.dweights);
     }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::qk_norm_backward<T>(a.heads, a.scale, a.x, a.q_weight, a.k_weight, a.rstd, a.dy, a.dx,
                                  a.dweights);
       });
     }},
};

void check(const char* op, const HeadLayout& heads, const Tensor& x, const Tensor& q_weight,
           const Tensor& k_weight, const Tensor& rstd) {
  ATOLL_CHECK(heads.num_heads > 0 && heads.num_kv_heads > 0 && heads.head_dim > 0,
              "{}: {} heads, {} key-value heads of {} elements", op, heads.num_heads,
              heads.num_kv_heads, heads.head_dim);
  ATOLL_CHECK(x.shape().rank() >= 1 && x.dim(-1) == heads.qkv_width(),
              "{}: x is {}, its innermost dim must be {}", op, x.spec().to_string(),
              heads.qkv_width());
  check_spec(op, {x.dtype(), {heads.head_dim}}, {q_weight, k_weight});
  const Spec normed = x.spec().with_last(heads.num_heads + heads.num_kv_heads);
  check_spec(op, normed.in_compute_dtype(), {rstd});
}

}  // namespace

void qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                     Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd) {
  constexpr const char* kOp = "qk_norm_forward";
  check(kOp, heads, x, q_weight, k_weight, rstd);
  check_spec(kOp, x.spec(), {x, y});
  ATOLL_CHECK(x.raw() != y.raw() || !x.defined(), "{}: y must not be x", kOp);
  dispatch<Args>(kOp, kForward, run,
                 {.heads = heads,
                  .scale = scale,
                  .x = x,
                  .q_weight = q_weight,
                  .k_weight = k_weight,
                  .y = y,
                  .rstd = rstd},
                 cost_of({x, y, rstd}));
}

void qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                      Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                      Tensor dweights) {
  constexpr const char* kOp = "qk_norm_backward";
  check(kOp, heads, x, q_weight, k_weight, rstd);
  check_spec(kOp, x.spec(), {x, dy, dx});
  check_spec(kOp, {compute_dtype(x.dtype()), {2, heads.head_dim}}, {dweights});
  dispatch<Args>(kOp, kBackward, run,
                 {.heads = heads,
                  .scale = scale,
                  .x = x,
                  .q_weight = q_weight,
                  .k_weight = k_weight,
                  .rstd = rstd,
                  .dy = dy,
                  .dx = dx,
                  .dweights = dweights},
                 cost_of({x, rstd, dy, dx}));
}

std::size_t qk_norm_scratch_bytes(const HeadLayout& heads, const Spec& x) {
  return cpu::qk_norm_scratch_bytes(heads, x);
}

}  // namespace atl::ops
