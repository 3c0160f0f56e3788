#include "atoll/ops/norm.h"

#include "atoll/ops/cpu/norm.h"
#include "atoll/ops/cuda/norm.h"
#include "atoll/ops/ref/norm.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// The operands of one call; bias, mean and dbias are undefined for an RMS norm.
struct Forward {
  double eps;
  Tensor x, weight, bias, y, mean, rstd;
};
struct BackwardInput {
  Tensor x, weight, mean, rstd, dy, dx;
};
struct BackwardWeight {
  Tensor x, mean, rstd, dy, dweight, dbias;
};

Spec columns(const Tensor& x) {
  return {x.dtype(), {x.dim(-1)}};
}

// Statistics and weight gradients are never rounded to storage.
void check_statistics(const char* op, const Tensor& x, std::initializer_list<Tensor> tensors) {
  check_size(op, compute_dtype(x.dtype()), x.shape().num_rows(), tensors);
}

constexpr Implementation<Forward> kRmsForward[] = {
    {"cpu",
     [](Run& run, const Forward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::rms_norm_forward(run, a.eps, a.x, a.weight, a.y, a.rstd);
       });
     }},
    {"cuda",
     [](Run& run, const Forward& a) {
       return cuda::norm_forward(run, a.eps, a.x, a.weight, {}, a.y, {}, a.rstd);
     }},
    {"ref",
     [](Run& run, const Forward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::rms_norm_forward<T>(a.eps, a.x, a.weight, a.y, a.rstd);
       });
     }},
};

constexpr Implementation<BackwardInput> kRmsBackwardInput[] = {
    {"cpu",
     [](Run& run, const BackwardInput& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::rms_norm_backward_input(run, a.x, a.weight, a.rstd, a.dy, a.dx);
       });
     }},
    {"cuda",
     [](Run& run, const BackwardInput& a) {
       return cuda::norm_backward_input(run, a.x, a.weight, {}, a.rstd, a.dy, a.dx);
     }},
    {"ref",
     [](Run& run, const BackwardInput& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::rms_norm_backward_input<T>(a.x, a.weight, a.rstd, a.dy, a.dx);
       });
     }},
};

constexpr Implementation<BackwardWeight> kRmsBackwardWeight[] = {
    {"cpu",
     [](Run& run, const BackwardWeight& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::rms_norm_backward_weight(run, a.x, a.rstd, a.dy, a.dweight);
       });
     }},
    {"cuda",
     [](Run& run, const BackwardWeight& a) {
       return cuda::norm_backward_weight(run, a.x, {}, a.rstd, a.dy, a.dweight, {});
     }},
    {"ref",
     [](Run& run, const BackwardWeight& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::rms_norm_backward_weight<T>(a.x, a.rstd, a.dy, a.dweight);
       });
     }},
};

constexpr Implementation<Forward> kLayerForward[] = {
    {"cpu",
     [](Run& run, const Forward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::layer_norm_forward(run, a.eps, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
       });
     }},
    {"cuda",
     [](Run& run, const Forward& a) {
       return cuda::norm_forward(run, a.eps, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
     }},
    {"ref",
     [](Run& run, const Forward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::layer_norm_forward<T>(a.eps, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
       });
     }},
};

constexpr Implementation<BackwardInput> kLayerBackwardInput[] = {
    {"cpu",
     [](Run& run, const BackwardInput& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::layer_norm_backward_input(run, a.x, a.weight, a.mean, a.rstd, a.dy, a.dx);
       });
     }},
    {"cuda",
     [](Run& run, const BackwardInput& a) {
       return cuda::norm_backward_input(run, a.x, a.weight, a.mean, a.rstd, a.dy, a.dx);
     }},
    {"ref",
     [](Run& run, const BackwardInput& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::layer_norm_backward_input<T>(a.x, a.weight, a.mean, a.rstd, a.dy, a.dx);
       });
     }},
};

constexpr Implementation<BackwardWeight> kLayerBackwardWeight[] = {
    {"cpu",
     [](Run& run, const BackwardWeight& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::layer_norm_backward_weight(run, a.x, a.mean, a.rstd, a.dy, a.dweight, a.dbias);
       });
     }},
    {"cuda",
     [](Run& run, const BackwardWeight& a) {
       return cuda::norm_backward_weight(run, a.x, a.mean, a.rstd, a.dy, a.dweight, a.dbias);
     }},
    {"ref",
     [](Run& run, const BackwardWeight& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::layer_norm_backward_weight<T>(a.x, a.mean, a.rstd, a.dy, a.dweight, a.dbias);
       });
     }},
};

}  // namespace

void rms_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor y, Tensor rstd) {
  constexpr const char* kOp = "rms_norm_forward";
  check_spec(kOp, x.spec(), {x, y});
  check_spec(kOp, columns(x), {weight});
  check_statistics(kOp, x, {rstd});
  dispatch<Forward>(kOp, kRmsForward, run, {eps, x, weight, {}, y, {}, rstd},
                    cost_of({x, y, rstd}));
}

void rms_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx) {
  constexpr const char* kOp = "rms_norm_backward_input";
  check_spec(kOp, x.spec(), {x, dy, dx});
  check_spec(kOp, columns(x), {weight});
  check_statistics(kOp, x, {rstd});
  dispatch<BackwardInput>(kOp, kRmsBackwardInput, run, {x, weight, {}, rstd, dy, dx},
                          cost_of({x, rstd, dy, dx}));
}

void rms_norm_backward_weight(Run& run, Tensor x, Tensor rstd, Tensor dy, Tensor dweight) {
  constexpr const char* kOp = "rms_norm_backward_weight";
  check_spec(kOp, x.spec(), {x, dy});
  check_spec(kOp, columns(x).in_compute_dtype(), {dweight});
  check_statistics(kOp, x, {rstd});
  dispatch<BackwardWeight>(kOp, kRmsBackwardWeight, run, {x, {}, rstd, dy, dweight, {}},
                           cost_of({x, rstd, dy}));
}

void layer_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                        Tensor mean, Tensor rstd) {
  constexpr const char* kOp = "layer_norm_forward";
  check_spec(kOp, x.spec(), {x, y});
  check_spec(kOp, columns(x), {weight, bias});
  check_statistics(kOp, x, {mean, rstd});
  dispatch<Forward>(kOp, kLayerForward, run, {eps, x, weight, bias, y, mean, rstd},
                    cost_of({x, y, mean, rstd}));
}

void layer_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                               Tensor dy, Tensor dx) {
  constexpr const char* kOp = "layer_norm_backward_input";
  check_spec(kOp, x.spec(), {x, dy, dx});
  check_spec(kOp, columns(x), {weight});
  check_statistics(kOp, x, {mean, rstd});
  dispatch<BackwardInput>(kOp, kLayerBackwardInput, run, {x, weight, mean, rstd, dy, dx},
                          cost_of({x, mean, rstd, dy, dx}));
}

void layer_norm_backward_weight(Run& run, Tensor x, Tensor mean, Tensor rstd, Tensor dy,
                                Tensor dweight, Tensor dbias) {
  constexpr const char* kOp = "layer_norm_backward_weight";
  check_spec(kOp, x.spec(), {x, dy});
  check_spec(kOp, columns(x).in_compute_dtype(), {dweight, dbias});
  check_statistics(kOp, x, {mean, rstd});
  dispatch<BackwardWeight>(kOp, kLayerBackwardWeight, run, {x, mean, rstd, dy, dweight, dbias},
                           cost_of({x, mean, rstd, dy}));
}

std::size_t norm_scratch_bytes(const Spec& x) {
  return cpu::norm_scratch_bytes(x);
}

}  // namespace atl::ops
