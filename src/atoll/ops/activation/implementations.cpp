#include "atoll/ops/activation/activation.h"

#include <algorithm>

#include "atoll/ops/activation/cpu.h"
#include "atoll/ops/activation/cuda.h"
#include "atoll/ops/activation/ref.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct SwigluForward {
  Tensor gate_up, h;
};
struct SwigluBackward {
  Tensor gate_up, dh, dgate_up, h;
};
struct GegluForward {
  Gelu kind;
  Tensor gate_up, h;
};
struct GegluBackward {
  Gelu kind;
  Tensor gate_up, dh, dgate_up, h;
};
struct GeluForward {
  Gelu kind;
  Tensor x, y;
};
struct GeluBackward {
  Gelu kind;
  Tensor x, dy, dx, y, sums;
};

constexpr Implementation<SwigluForward> kSwigluForward[] = {
    {"cpu",
     [](Run& run, const SwigluForward& a) {
       return serve_f32_or_bf16(run, a.h.dtype(),
                                [&] { cpu::swiglu_forward(run, a.gate_up, a.h); });
     }},
    {"cuda",
     [](Run& run, const SwigluForward& a) { return cuda::swiglu_forward(run, a.gate_up, a.h); }},
    {"ref",
     [](Run& run, const SwigluForward& a) {
       return serve_any_storage(run, a.h.dtype(),
                                [&]<typename T>(T) { ref::swiglu_forward<T>(a.gate_up, a.h); });
     }},
};

constexpr Implementation<SwigluBackward> kSwigluBackward[] = {
    {"cpu",
     [](Run& run, const SwigluBackward& a) {
       return serve_f32_or_bf16(
           run, a.dh.dtype(), [&] { cpu::swiglu_backward(run, a.gate_up, a.dh, a.dgate_up, a.h); });
     }},
    {"cuda",
     [](Run& run, const SwigluBackward& a) {
       return cuda::swiglu_backward(run, a.gate_up, a.dh, a.dgate_up, a.h);
     }},
    {"ref",
     [](Run& run, const SwigluBackward& a) {
       return serve_any_storage(run, a.dh.dtype(), [&]<typename T>(T) {
         ref::swiglu_backward<T>(a.gate_up, a.dh, a.dgate_up, a.h);
       });
     }},
};

constexpr Implementation<GegluForward> kGegluForward[] = {
    {"cpu",
     [](Run& run, const GegluForward& a) {
       return serve_f32_or_bf16(run, a.h.dtype(),
                                [&] { cpu::geglu_forward(run, a.kind, a.gate_up, a.h); });
     }},
    {"cuda",
     [](Run& run, const GegluForward& a) {
       return cuda::geglu_forward(run, a.kind, a.gate_up, a.h);
     }},
    {"ref",
     [](Run& run, const GegluForward& a) {
       return serve_any_storage(
           run, a.h.dtype(), [&]<typename T>(T) { ref::geglu_forward<T>(a.kind, a.gate_up, a.h); });
     }},
};

constexpr Implementation<GegluBackward> kGegluBackward[] = {
    {"cpu",
     [](Run& run, const GegluBackward& a) {
       return serve_f32_or_bf16(run, a.dh.dtype(), [&] {
         cpu::geglu_backward(run, a.kind, a.gate_up, a.dh, a.dgate_up, a.h);
       });
     }},
    {"cuda",
     [](Run& run, const GegluBackward& a) {
       return cuda::geglu_backward(run, a.kind, a.gate_up, a.dh, a.dgate_up, a.h);
     }},
    {"ref",
     [](Run& run, const GegluBackward& a) {
       return serve_any_storage(run, a.dh.dtype(), [&]<typename T>(T) {
         ref::geglu_backward<T>(a.kind, a.gate_up, a.dh, a.dgate_up, a.h);
       });
     }},
};

constexpr Implementation<GeluForward> kGeluForward[] = {
    {"cpu",
     [](Run& run, const GeluForward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(),
                                [&] { cpu::gelu_forward(run, a.kind, a.x, a.y); });
     }},
    {"cuda",
     [](Run& run, const GeluForward& a) { return cuda::gelu_forward(run, a.kind, a.x, a.y); }},
    {"ref",
     [](Run& run, const GeluForward& a) {
       return serve_any_storage(run, a.x.dtype(),
                                [&]<typename T>(T) { ref::gelu_forward<T>(a.kind, a.x, a.y); });
     }},
};

constexpr Implementation<GeluBackward> kGeluBackward[] = {
    {"cpu",
     [](Run& run, const GeluBackward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::gelu_backward(run, a.kind, a.x, a.dy, a.dx, a.y, a.sums);
       });
     }},
    {"cuda",
     [](Run& run, const GeluBackward& a) {
       return cuda::gelu_backward(run, a.kind, a.x, a.dy, a.dx, a.y, a.sums);
     }},
    {"ref",
     [](Run& run, const GeluBackward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::gelu_backward<T>(a.kind, a.x, a.dy, a.dx);
         if (a.y.defined()) ref::gelu_forward<T>(a.kind, a.x, a.y);
         if (!a.sums.defined()) return;
         auto* sums = a.sums.data<Compute<T>>();  // of all rows in the first block
         std::fill(sums, sums + a.sums.num_elements(), Compute<T>{0});
         ref::column_sum<T>(a.dx.shape().num_rows(), a.dx.dim(-1), a.dx.data<T>(), sums);
       });
     }},
};

}  // namespace

void swiglu_forward(Run& run, Tensor gate_up, Tensor h) {
  check_spec("swiglu_forward", h.spec().with_last(2 * h.dim(-1)), {gate_up});
  check_spec("swiglu_forward", h.spec(), {h});
  dispatch<SwigluForward>("swiglu_forward", kSwigluForward, run, {gate_up, h},
                          cost_of({h, gate_up}));
}

void swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  check_spec("swiglu_backward", dh.spec().with_last(2 * dh.dim(-1)), {gate_up, dgate_up});
  if (h.defined()) check_spec("swiglu_backward", dh.spec(), {h});
  dispatch<SwigluBackward>("swiglu_backward", kSwigluBackward, run, {gate_up, dh, dgate_up, h},
                           cost_of({dh, h, gate_up, dgate_up}));
}

void geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h) {
  check_spec("geglu_forward", h.spec().with_last(2 * h.dim(-1)), {gate_up});
  check_spec("geglu_forward", h.spec(), {h});
  dispatch<GegluForward>("geglu_forward", kGegluForward, run, {kind, gate_up, h},
                         cost_of({h, gate_up}));
}

void geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  check_spec("geglu_backward", dh.spec().with_last(2 * dh.dim(-1)), {gate_up, dgate_up});
  if (h.defined()) check_spec("geglu_backward", dh.spec(), {h});
  dispatch<GegluBackward>("geglu_backward", kGegluBackward, run, {kind, gate_up, dh, dgate_up, h},
                          cost_of({dh, h, gate_up, dgate_up}));
}

void gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y) {
  check_size("gelu_forward", x.dtype(), x.num_elements(), {x, y});
  dispatch<GeluForward>("gelu_forward", kGeluForward, run, {kind, x, y}, cost_of({x, y}));
}

void gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y, Tensor sums) {
  constexpr const char* kOp = "gelu_backward";
  check_size(kOp, x.dtype(), x.num_elements(), {x, dy, dx});
  if (y.defined()) check_size(kOp, x.dtype(), x.num_elements(), {y});
  if (sums.defined()) check_spec(kOp, column_sums_spec(dx.spec()), {sums});
  dispatch<GeluBackward>(kOp, kGeluBackward, run, {kind, x, dy, dx, y, sums},
                         cost_of({x, dy, dx, y}));
}

}  // namespace atl::ops
