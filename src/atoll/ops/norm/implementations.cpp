#include "atoll/ops/norm/norm.h"

#include <algorithm>

#include "atoll/ops/norm/cpu.h"
#include "atoll/ops/norm/cuda.h"
#include "atoll/ops/norm/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// The operands of one call; bias, mean and dbias are undefined for an RMS norm.
struct Forward {
  RmsScale scale;  // of a layer norm: eps alone
  Tensor x, weight, bias, y, mean, rstd;
};
struct Backward {
  RmsScale scale;
  Tensor x, weight, mean, rstd, dy, dresidual, dx, sums;
};
struct AddSums {
  std::int64_t rows;
  Tensor sums, dweight, dbias;
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
         cpu::rms_norm_forward(run, a.scale, a.x, a.weight, a.y, a.rstd);
       });
     }},
    {"cuda",
     [](Run& run, const Forward& a) {
       return cuda::norm_forward(run, a.scale, a.x, a.weight, {}, a.y, {}, a.rstd);
     }},
    {"ref",
     [](Run& run, const Forward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::rms_norm_forward<T>(a.scale, a.x, a.weight, a.y, a.rstd);
       });
     }},
};

constexpr Implementation<Forward> kLayerForward[] = {
    {"cpu",
     [](Run& run, const Forward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::layer_norm_forward(run, a.scale.eps, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
       });
     }},
    {"cuda",
     [](Run& run, const Forward& a) {
       return cuda::norm_forward(run, a.scale, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
     }},
    {"ref",
     [](Run& run, const Forward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::layer_norm_forward<T>(a.scale.eps, a.x, a.weight, a.bias, a.y, a.mean, a.rstd);
       });
     }},
};

// Sums of all rows in the first block.
template <typename T>
void backward_by_ref(const Backward& a) {
  const bool is_layer = a.mean.defined();
  if (a.sums.defined()) {
    const Spec row = columns(a.x).in_compute_dtype();
    auto* sums = a.sums.data<Compute<T>>();
    std::fill(sums, sums + a.sums.num_elements(), Compute<T>{0});
    const Tensor dweight(sums, row);
    if (is_layer) {
      const Tensor dbias(sums + a.x.dim(-1), row);
      ref::layer_norm_backward_weight<T>(a.x, a.mean, a.rstd, a.dy, dweight, dbias);
    } else {
      ref::rms_norm_backward_weight<T>(a.x, a.rstd, a.dy, dweight);
    }
  }
  if (is_layer)
    ref::layer_norm_backward_input<T>(a.x, a.weight, a.mean, a.rstd, a.dy, a.dx, a.dresidual);
  else
    ref::rms_norm_backward_input<T>(a.scale, a.x, a.weight, a.rstd, a.dy, a.dx, a.dresidual);
}

constexpr Implementation<Backward> kBackward[] = {
    {"cpu",
     [](Run& run, const Backward& a) {
       return serve_f32_or_bf16(run, a.x.dtype(), [&] {
         cpu::norm_backward(run, a.scale, a.x, a.weight, a.mean, a.rstd, a.dy, a.dresidual, a.dx,
                            a.sums);
       });
     }},
    {"cuda",
     [](Run& run, const Backward& a) {
       return cuda::norm_backward(run, a.scale, a.x, a.weight, a.mean, a.rstd, a.dy, a.dresidual,
                                  a.dx, a.sums);
     }},
    {"ref",
     [](Run& run, const Backward& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) { backward_by_ref<T>(a); });
     }},
};

constexpr Implementation<AddSums> kAddSums[] = {
    {"cpu",
     [](Run& run, const AddSums& a) {
       return serve_f32(run, a.sums.dtype(),
                        [&] { cpu::add_norm_sums(run, a.rows, a.sums, a.dweight, a.dbias); });
     }},
    {"cuda",
     [](Run& run, const AddSums& a) {
       return cuda::add_norm_sums(run, a.rows, a.sums, a.dweight, a.dbias);
     }},
    {"ref",
     [](Run& run, const AddSums& a) {
       return serve_any_float(run, a.sums.dtype(), [&]<typename T>(T) {
         const T* sums = a.sums.data<T>();
         for (const Tensor& total : {a.dweight, a.dbias}) {
           if (!total.defined()) continue;
           for (std::int64_t c = 0; c < total.num_elements(); ++c) total.data<T>()[c] += *sums++;
         }
       });
     }},
};

void run_backward(const char* op, Run& run, const Backward& a) {
  const int num_sums = a.mean.defined() ? 2 : 1;
  check_spec(op, a.x.spec(), {a.x, a.dy, a.dx});
  if (a.dresidual.defined()) check_spec(op, a.x.spec(), {a.dresidual});
  if (a.sums.defined()) check_spec(op, norm_sums_spec(a.x.spec(), num_sums), {a.sums});
  check_spec(op, columns(a.x), {a.weight});
  check_statistics(op, a.x, {a.rstd});
  if (a.mean.defined()) check_statistics(op, a.x, {a.mean});
  dispatch<Backward>(op, kBackward, run, a,
                     cost_of({a.x, a.mean, a.rstd, a.dy, a.dresidual, a.dx}));
}

}  // namespace

void rms_norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor y,
                      Tensor rstd) {
  constexpr const char* kOp = "rms_norm_forward";
  check_spec(kOp, x.spec(), {x, y});
  check_spec(kOp, columns(x), {weight});
  check_statistics(kOp, x, {rstd});
  dispatch<Forward>(kOp, kRmsForward, run, {scale, x, weight, {}, y, {}, rstd},
                    cost_of({x, y, rstd}));
}

void rms_norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor rstd,
                       Tensor dy, Tensor dresidual, Tensor dx, Tensor sums) {
  run_backward("rms_norm_backward", run, {scale, x, weight, {}, rstd, dy, dresidual, dx, sums});
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

void layer_norm_backward(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                         Tensor dresidual, Tensor dx, Tensor sums) {
  check_statistics("layer_norm_backward", x, {mean});
  run_backward("layer_norm_backward", run, {0, x, weight, mean, rstd, dy, dresidual, dx, sums});
}

Spec norm_sums_spec(const Spec& x, int num_sums) {
  const std::int64_t rows = x.shape.num_rows();
  const std::int64_t blocks = std::max(cpu::norm_row_blocks(rows), cuda::norm_row_blocks(rows));
  return {compute_dtype(x.dtype), {blocks, num_sums, x.shape.dim(-1)}};
}

void add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias) {
  constexpr const char* kOp = "add_norm_sums";
  ATOLL_CHECK(sums.shape().rank() == 3 && sums.dim(1) == (dbias.defined() ? 2 : 1), "{}",
              sums.spec().to_string());
  check_spec(kOp, norm_sums_spec({sums.dtype(), {rows, sums.dim(2)}}, dbias.defined() ? 2 : 1),
             {sums});
  check_spec(kOp, {sums.dtype(), {sums.dim(2)}}, {dweight});
  if (dbias.defined()) check_spec(kOp, dweight.spec(), {dbias});
  dispatch<AddSums>(kOp, kAddSums, run, {rows, sums, dweight, dbias},
                    cost_of({sums, dweight, dweight, dbias, dbias}));
}

}  // namespace atl::ops
