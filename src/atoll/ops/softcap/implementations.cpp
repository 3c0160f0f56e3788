#include "atoll/ops/implementations.h"

#include "atoll/ops/serve.h"
#include "atoll/ops/softcap/cpu.h"
#include "atoll/ops/softcap/cuda.h"
#include "atoll/ops/softcap/ref.h"
#include "atoll/ops/softcap/softcap.h"

namespace atl::ops {

namespace {

struct SoftcapForward {
  double cap;
  Tensor x, y;
};
struct SoftcapBackward {
  double cap;
  Tensor y, dy, dx;
};

constexpr Implementation<SoftcapForward> kForward[] = {
    {"cpu",
     [](Run& run, const SoftcapForward& a) {
       return serve_f32(run, a.y.dtype(), [&] { cpu::softcap_forward(run, a.cap, a.x, a.y); });
     }},
    {"cuda",
     [](Run& run, const SoftcapForward& a) { return cuda::softcap_forward(run, a.cap, a.x, a.y); }},
    {"ref",
     [](Run& run, const SoftcapForward& a) {
       return serve_any_float(run, a.y.dtype(),
                              [&]<typename T>(T) { ref::softcap_forward<T>(a.cap, a.x, a.y); });
     }},
};

constexpr Implementation<SoftcapBackward> kBackward[] = {
    {"cpu",
     [](Run& run, const SoftcapBackward& a) {
       return serve_f32(run, a.y.dtype(),
                        [&] { cpu::softcap_backward(run, a.cap, a.y, a.dy, a.dx); });
     }},
    {"cuda",
     [](Run& run, const SoftcapBackward& a) {
       return cuda::softcap_backward(run, a.cap, a.y, a.dy, a.dx);
     }},
    {"ref",
     [](Run& run, const SoftcapBackward& a) {
       return serve_any_float(run, a.y.dtype(), [&]<typename T>(T) {
         ref::softcap_backward<T>(a.cap, a.y, a.dy, a.dx);
       });
     }},
};

}  // namespace

void softcap_forward(Run& run, double cap, Tensor x, Tensor y) {
  ATOLL_CHECK(cap > 0, "softcap: {}", cap);
  check_size("softcap_forward", y.dtype(), y.num_elements(), {x, y});
  dispatch<SoftcapForward>("softcap_forward", kForward, run, {cap, x, y}, cost_of({x, y}));
}

void softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx) {
  ATOLL_CHECK(cap > 0, "softcap: {}", cap);
  check_size("softcap_backward", y.dtype(), y.num_elements(), {y, dy, dx});
  dispatch<SoftcapBackward>("softcap_backward", kBackward, run, {cap, y, dy, dx},
                            cost_of({y, dy, dx}));
}

}  // namespace atl::ops
