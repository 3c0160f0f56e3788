#include "atoll/ops/activation/cpu.h"

#include <algorithm>

#include "atoll/ops/matmul/cpu_column_sum.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/activation/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "atoll/ops/cpu/exp2-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE Vf constant(float value) {
  return hn::Set(F32(), value);
}

// s = sigmoid(x) and s (1 - s).
struct Sigmoid {
  Vf value;
  Vf slope;
};

// For z = -x log2(e), so that 2^z is e^-x; the caller has a factor to fold log2(e) into.
HWY_INLINE Sigmoid sigmoid_of(Vf z) {
  // From 2^127 on there is no exponential; s = 2^-126 = 1.2e-38 stands for less than that.
  const Vf e = exp2_lanes(hn::Min(constant(126.0F), z));
  const Vf s = hn::Div(constant(1.0F), hn::Add(constant(1.0F), e));
  // e s is 1 - s without the cancellation that 1 - s has for large x.
  return {s, hn::Mul(hn::Mul(e, s), s)};
}

HWY_INLINE Sigmoid sigmoid(Vf x) {
  return sigmoid_of(hn::Mul(x, constant(-kBitsPerNat)));
}

template <class T>
void swiglu_row(const T* gate, const T* up, std::size_t F, T* h) {
  for_lanes(F, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = lanes.load(gate + i);
    lanes.store(hn::Mul(hn::Mul(g, sigmoid(g).value), lanes.load(up + i)), h + i);
  });
}

template <class T>
void swiglu_backward_row(const T* gate, const T* up, const T* dh, std::size_t F, T* dgate, T* dup,
                         T* h) {
  for_lanes(F, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = lanes.load(gate + i);
    const Vf u = lanes.load(up + i);
    const Vf d = lanes.load(dh + i);
    const Sigmoid s = sigmoid(g);
    const Vf silu = hn::Mul(g, s.value);
    if (h != nullptr) lanes.store(hn::Mul(silu, u), h + i);
    lanes.store(hn::Mul(d, silu), dup + i);
    lanes.store(hn::Mul(hn::Mul(d, u), hn::MulAdd(g, s.slope, s.value)), dgate + i);
  });
}

// gelu(x) / x, and the derivative of gelu.
struct GeluParts {
  Vf factor;
  Vf slope;
};

// (1 + tanh(u)) / 2 is sigmoid(2u): one exponential, and no cancellation in the left tail.
HWY_INLINE GeluParts gelu_tanh(Vf x) {
  constexpr float k2 = 1.5957691216F;  // 2 sqrt(2 / pi)
  constexpr float kCubic = 0.044715F;
  const Vf square = hn::Mul(x, x);
  const Vf z = hn::Mul(
      x, hn::MulAdd(square, constant(-k2 * kBitsPerNat * kCubic), constant(-k2 * kBitsPerNat)));
  // Beyond 30 the slope is 0 or 1 whatever x^2 is, and x^2 must not overflow.
  const Vf capped = hn::Min(square, constant(900.0F));
  const Vf du2 = hn::MulAdd(capped, constant(3 * kCubic * k2), constant(k2));
  const Sigmoid s = sigmoid_of(z);
  return {s.value, hn::MulAdd(hn::Mul(x, s.slope), du2, s.value)};
}

// Phi(x), the normal distribution function. For a = |x|, Phi(-a) = exp(-a^2 / 2) R(a) where R is
// smooth and, in t = 1 / (1 + 0.27 a), nearly linear: R(a) / t is a polynomial of degree 8 through
// the exact values at the Chebyshev nodes of a in [0, 14.5], with a relative error of 3e-8.
HWY_INLINE GeluParts gelu_erf(Vf x) {
  const Vf one = constant(1.0F);
  const Vf a = hn::Abs(x);
  const Vf t = hn::Div(one, hn::MulAdd(a, constant(0.27F), one));
  Vf r = constant(0.0292058334196F);
  for (const float coefficient :
       {-0.127722557355F, 0.172436097241F, -0.0723445623723F, 0.110054217274F, 0.0710775825246F,
        0.102063549114F, 0.107507093163F, 0.107722758478F}) {
    r = hn::MulAdd(r, t, constant(coefficient));
  }
  const Vf exponent = hn::Mul(hn::Mul(a, a), constant(-0.5F));
  const Vf e = hn::Exp(F32(), hn::Max(exponent, constant(-104.0F)));  // 0 from there on
  const Vf tail = hn::Mul(e, hn::Mul(r, t));
  const Vf cdf = hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), tail, hn::Sub(one, tail));
  const Vf density = hn::Mul(e, constant(0.3989422804F));  // 1 / sqrt(2 pi)
  return {cdf, hn::MulAdd(x, density, cdf)};
}

// Kind: gelu_tanh or gelu_erf, as a function object.
template <class T, class Kind>
void gelu_span(Kind gelu, const T* x, std::size_t n, T* y) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf v = lanes.load(x + i);
    lanes.store(hn::Mul(v, gelu(v).factor), y + i);
  });
}

template <class T, class Kind>
void gelu_backward_span(Kind gelu, const T* x, const T* dy, std::size_t n, T* dx, T* y) {
  if (y == nullptr) {
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(lanes.load(dy + i), gelu(lanes.load(x + i)).slope), dx + i);
    });
    return;
  }
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf v = lanes.load(x + i);
    const GeluParts parts = gelu(v);
    lanes.store(hn::Mul(v, parts.factor), y + i);
    lanes.store(hn::Mul(lanes.load(dy + i), parts.slope), dx + i);
  });
}

struct TanhKind {
  HWY_INLINE GeluParts operator()(Vf x) const { return gelu_tanh(x); }
};
struct ErfKind {
  HWY_INLINE GeluParts operator()(Vf x) const { return gelu_erf(x); }
};

template <class T, class Kind>
void geglu_row(Kind gelu, const T* gate, const T* up, std::size_t F, T* h) {
  for_lanes(F, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = lanes.load(gate + i);
    lanes.store(hn::Mul(hn::Mul(g, gelu(g).factor), lanes.load(up + i)), h + i);
  });
}

template <class T, class Kind>
void geglu_backward_row(Kind gelu, const T* gate, const T* up, const T* dh, std::size_t F, T* dgate,
                        T* dup, T* h) {
  for_lanes(F, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = lanes.load(gate + i);
    const Vf u = lanes.load(up + i);
    const Vf d = lanes.load(dh + i);
    const GeluParts parts = gelu(g);
    const Vf y = hn::Mul(g, parts.factor);
    if (h != nullptr) lanes.store(hn::Mul(y, u), h + i);
    lanes.store(hn::Mul(d, y), dup + i);
    lanes.store(hn::Mul(hn::Mul(d, u), parts.slope), dgate + i);
  });
}

// Rows, or elements, [begin, end) of a whole tensor.

void Swiglu(const Tensor& gate_up, const Tensor& h, std::int64_t begin, std::int64_t end) {
  const std::int64_t F = h.dim(-1);
  with_storage(h.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up.data<T>() + row * 2 * F;
      swiglu_row(gate, gate + F, static_cast<std::size_t>(F), h.data<T>() + row * F);
    }
  });
}

void SwigluBackward(const Tensor& gate_up, const Tensor& dh, const Tensor& dgate_up,
                    const Tensor& h, std::int64_t begin, std::int64_t end) {
  const std::int64_t F = dh.dim(-1);
  with_storage(dh.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up.data<T>() + row * 2 * F;
      T* dgate = dgate_up.data<T>() + row * 2 * F;
      swiglu_backward_row(gate, gate + F, dh.data<T>() + row * F, static_cast<std::size_t>(F),
                          dgate, dgate + F, h.defined() ? h.data<T>() + row * F : nullptr);
    }
  });
}

void Geglu(Gelu kind, const Tensor& gate_up, const Tensor& h, std::int64_t begin,
           std::int64_t end) {
  const std::int64_t F = h.dim(-1);
  const auto width = static_cast<std::size_t>(F);
  with_storage(h.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up.data<T>() + row * 2 * F;
      T* to = h.data<T>() + row * F;
      if (kind == Gelu::kErf)
        geglu_row(ErfKind(), gate, gate + F, width, to);
      else
        geglu_row(TanhKind(), gate, gate + F, width, to);
    }
  });
}

void GegluBackward(Gelu kind, const Tensor& gate_up, const Tensor& dh, const Tensor& dgate_up,
                   const Tensor& h, std::int64_t begin, std::int64_t end) {
  const std::int64_t F = dh.dim(-1);
  const auto width = static_cast<std::size_t>(F);
  with_storage(dh.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up.data<T>() + row * 2 * F;
      const T* d = dh.data<T>() + row * F;
      T* dgate = dgate_up.data<T>() + row * 2 * F;
      T* again = h.defined() ? h.data<T>() + row * F : nullptr;
      if (kind == Gelu::kErf)
        geglu_backward_row(ErfKind(), gate, gate + F, d, width, dgate, dgate + F, again);
      else
        geglu_backward_row(TanhKind(), gate, gate + F, d, width, dgate, dgate + F, again);
    }
  });
}

void GeluForward(Gelu kind, const Tensor& x, const Tensor& y, std::int64_t begin,
                 std::int64_t end) {
  const auto n = static_cast<std::size_t>(end - begin);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    const T* from = x.data<T>() + begin;
    T* to = y.data<T>() + begin;
    if (kind == Gelu::kErf) return gelu_span(ErfKind(), from, n, to);
    gelu_span(TanhKind(), from, n, to);
  });
}

void GeluBackward(Gelu kind, const Tensor& x, const Tensor& dy, const Tensor& dx, const Tensor& y,
                  std::int64_t begin, std::int64_t end) {
  const auto n = static_cast<std::size_t>(end - begin);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    const T* from = x.data<T>() + begin;
    const T* gradient = dy.data<T>() + begin;
    T* to = dx.data<T>() + begin;
    T* again = y.defined() ? y.data<T>() + begin : nullptr;
    if (kind == Gelu::kErf) return gelu_backward_span(ErfKind(), from, gradient, n, to, again);
    gelu_backward_span(TanhKind(), from, gradient, n, to, again);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(Swiglu);
HWY_EXPORT(SwigluBackward);
HWY_EXPORT(Geglu);
HWY_EXPORT(GegluBackward);
HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluBackward);

// Enough work to pay for handing a task to a thread, little enough to stay in its cache.
constexpr std::int64_t kElementsPerTask = 8192;

// Rows of F elements in one task.
std::int64_t rows_per_task(std::int64_t F) {
  return std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, F));
}

}  // namespace

void swiglu_forward(Run& run, Tensor gate_up, Tensor h) {
  run.threads().run_chunked(h.shape().num_rows(), rows_per_task(h.dim(-1)),
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(Swiglu)(gate_up, h, begin, end);
                            });
}

void swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  run.threads().run_chunked(
      dh.shape().num_rows(), rows_per_task(dh.dim(-1)), [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(SwigluBackward)(gate_up, dh, dgate_up, h, begin, end);
      });
}

void geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h) {
  run.threads().run_chunked(h.shape().num_rows(), rows_per_task(h.dim(-1)),
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(Geglu)(kind, gate_up, h, begin, end);
                            });
}

void geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  run.threads().run_chunked(
      dh.shape().num_rows(), rows_per_task(dh.dim(-1)), [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(GegluBackward)(kind, gate_up, dh, dgate_up, h, begin, end);
      });
}

void gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y) {
  run.threads().run_chunked(x.num_elements(), kElementsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(GeluForward)(kind, x, y, begin, end);
                            });
}

void gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y, Tensor sums) {
  run.threads().run_chunked(x.num_elements(), kElementsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(GeluBackward)(kind, x, dy, dx, y, begin, end);
                            });
  // By themselves: their blocks of rows are too few for all the threads that exponentials feed.
  if (sums.defined()) sum_row_blocks(run, dx, sums);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
