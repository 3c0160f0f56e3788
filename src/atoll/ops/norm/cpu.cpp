#include "atoll/ops/norm/cpu.h"

#include <algorithm>
#include <cmath>

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/norm/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// Each of these works on one row, or, for a weight gradient, on one block of rows. T is the storage
// of everything but statistics and weight gradients, which are f32.

template <class T>
void rms_row(float eps, float offset, const T* x, const T* w, std::size_t C, T* y, float* rstd) {
  const F32 d;
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf v = lanes.load(x + i);
    sum.first = hn::MulAdd(v, v, sum.first);
  });
  *rstd = 1.0F / std::sqrt(sums.first / static_cast<float>(C) + eps);
  const Vf r = hn::Set(d, *rstd);
  const Vf shift = hn::Set(d, offset);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf size = hn::Add(shift, lanes.load(w + i));
    lanes.store(hn::Mul(hn::Mul(lanes.load(x + i), r), size), y + i);
  });
}

template <class T>
void layer_row(float eps, const T* x, const T* w, const T* bias, std::size_t C, T* y, float* mean,
               float* rstd) {
  const F32 d;
  const float size = static_cast<float>(C);
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    sum.first = hn::Add(sum.first, lanes.load(x + i));
  });
  *mean = sums.first / size;
  const Vf m = hn::Set(d, *mean);
  // The row is in the first-level cache, so a second pass costs little; mean(x^2) - mean(x)^2 in
  // one pass would lose all digits when the mean is large.
  const TwoSums squares = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf v = lanes.counted(hn::Sub(lanes.load(x + i), m));
    sum.first = hn::MulAdd(v, v, sum.first);
  });
  *rstd = 1.0F / std::sqrt(squares.first / size + eps);
  const Vf r = hn::Set(d, *rstd);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf xhat = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
    lanes.store(hn::MulAdd(xhat, lanes.load(w + i), lanes.load(bias + i)), y + i);
  });
}

template <class T>
void rms_input_row(const T* x, const T* w, float offset, float rstd, const T* dy, std::size_t C,
                   T* dx) {
  const F32 d;
  const Vf r = hn::Set(d, rstd);
  const Vf shift = hn::Set(d, offset);
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), hn::Add(shift, lanes.load(w + i)));
    sum.first = hn::MulAdd(g, lanes.load(x + i), sum.first);
  });
  const Vf scale = hn::Set(d, sums.first * rstd * rstd / static_cast<float>(C));
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), hn::Add(shift, lanes.load(w + i)));
    lanes.store(hn::Mul(r, hn::NegMulAdd(lanes.load(x + i), scale, g)), dx + i);
  });
}

template <class T>
void layer_input_row(const T* x, const T* w, float mean, float rstd, const T* dy, std::size_t C,
                     T* dx) {
  const F32 d;
  const float size = static_cast<float>(C);
  const Vf m = hn::Set(d, mean);
  const Vf r = hn::Set(d, rstd);
  // A tail's loads of dy are zero, so both of its terms are.
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), lanes.load(w + i));
    sum.first = hn::Add(sum.first, g);
    sum.second = hn::MulAdd(g, hn::Sub(lanes.load(x + i), m), sum.second);
  });
  const Vf mean_g = hn::Set(d, sums.first / size);
  const Vf scale = hn::Set(d, sums.second * rstd * rstd / size);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), lanes.load(w + i));
    const Vf centred = hn::Sub(lanes.load(x + i), m);
    lanes.store(hn::Mul(r, hn::NegMulAdd(centred, scale, hn::Sub(g, mean_g))), dx + i);
  });
}

// dweight += dy * x * rstd of a row.
template <class T>
void rms_weight_row(const T* x, float rstd, const T* dy, std::size_t C, float* dweight) {
  const Vf r = hn::Set(F32(), rstd);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf xhat = hn::Mul(lanes.load(x + i), r);
    lanes.store(hn::MulAdd(lanes.load(dy + i), xhat, lanes.load(dweight + i)), dweight + i);
  });
}

// dweight += dy * (x - mean) * rstd of a row; dbias += dy.
template <class T>
void layer_weight_row(const T* x, float mean, float rstd, const T* dy, std::size_t C,
                      float* dweight, float* dbias) {
  const F32 d;
  const Vf m = hn::Set(d, mean);
  const Vf r = hn::Set(d, rstd);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = lanes.load(dy + i);
    const Vf xhat = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
    lanes.store(hn::MulAdd(g, xhat, lanes.load(dweight + i)), dweight + i);
    lanes.store(hn::Add(g, lanes.load(dbias + i)), dbias + i);
  });
}

// dx += dresidual.
template <class T>
void add_row(const T* dresidual, std::size_t C, T* dx) {
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(dresidual + i), lanes.load(dx + i)), dx + i);
  });
}

// The rows [begin, end) of a whole tensor.

void RmsRows(const RmsScale& scale, const Tensor& x, const Tensor& weight, const Tensor& y,
             float* rstd, std::int64_t begin, std::int64_t end) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      rms_row(static_cast<float>(scale.eps), static_cast<float>(scale.weight_offset),
              x.data<T>() + row * C, weight.data<T>(), static_cast<std::size_t>(C),
              y.data<T>() + row * C, rstd + row);
    }
  });
}

void LayerRows(double eps, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const Tensor& y, float* mean, float* rstd, std::int64_t begin, std::int64_t end) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      layer_row(static_cast<float>(eps), x.data<T>() + row * C, weight.data<T>(), bias.data<T>(),
                static_cast<std::size_t>(C), y.data<T>() + row * C, mean + row, rstd + row);
    }
  });
}

// sums: (1 or 2, C) of these rows, or null. A row's sums come before its dx, which may be its dy.
void BackwardRows(const RmsScale& scale, const Tensor& x, const Tensor& weight, const float* mean,
                  const float* rstd, const Tensor& dy, const Tensor& dresidual, const Tensor& dx,
                  std::int64_t begin, std::int64_t end, float* sums) {
  const std::int64_t width = x.dim(-1);
  const auto C = static_cast<std::size_t>(width);
  if (sums != nullptr) std::memset(sums, 0, (mean != nullptr ? 2 : 1) * C * sizeof(float));
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    const T* w = weight.data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x_row = x.data<T>() + row * width;
      const T* dy_row = dy.data<T>() + row * width;
      T* dx_row = dx.data<T>() + row * width;
      if (mean != nullptr) {
        if (sums != nullptr)
          layer_weight_row(x_row, mean[row], rstd[row], dy_row, C, sums, sums + C);
        layer_input_row(x_row, w, mean[row], rstd[row], dy_row, C, dx_row);
      } else {
        if (sums != nullptr) rms_weight_row(x_row, rstd[row], dy_row, C, sums);
        rms_input_row(x_row, w, static_cast<float>(scale.weight_offset), rstd[row], dy_row, C,
                      dx_row);
      }
      if (dresidual.defined()) add_row(dresidual.data<T>() + row * width, C, dx_row);
    }
  });
}

// total[begin, end) += the partial sums of all blocks, in block order.
void AddPartials(const float* partials, std::size_t num_blocks, std::size_t stride,
                 std::size_t begin, std::size_t end, float* total) {
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const float* partial = partials + block * stride + begin;
    for_lanes(end - begin, [&](std::size_t i, auto lanes) HWY_ATTR {
      float* sum = total + begin + i;
      lanes.store(hn::Add(lanes.load(sum), lanes.load(partial + i)), sum);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(RmsRows);
HWY_EXPORT(LayerRows);
HWY_EXPORT(BackwardRows);
HWY_EXPORT(AddPartials);

constexpr std::int64_t kRowsPerTask = 16;
constexpr std::int64_t kColumnsPerTask = 256;
// More blocks feed more threads and cost more memory and adding up.
constexpr std::int64_t kMaxBlocks = 64;
constexpr std::int64_t kMinRowsPerBlock = 16;

std::int64_t rows_per_block(std::int64_t rows) {
  return std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks);
}

// Adds the blocks' sums, laid out (num_blocks, stride) from `partials`, to `total` of C columns.
void add_partials(Run& run, const float* partials, std::int64_t num_blocks, std::int64_t stride,
                  Tensor total) {
  run.threads().run_chunked(
      total.num_elements(), kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(AddPartials)
        (partials, static_cast<std::size_t>(num_blocks), static_cast<std::size_t>(stride),
         static_cast<std::size_t>(begin), static_cast<std::size_t>(end), total.data<float>());
      });
}

}  // namespace

std::int64_t norm_row_blocks(std::int64_t rows) {
  return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
}

void rms_norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor y,
                      Tensor rstd) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(RmsRows)(scale, x, weight, y, rstd.data<float>(), begin, end);
      });
}

void layer_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                        Tensor mean, Tensor rstd) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(LayerRows)
        (eps, x, weight, bias, y, mean.data<float>(), rstd.data<float>(), begin, end);
      });
}

void norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor mean,
                   Tensor rstd, Tensor dy, Tensor dresidual, Tensor dx, Tensor sums) {
  const std::int64_t rows = x.shape().num_rows();
  const std::int64_t block = rows_per_block(rows);
  const std::int64_t stride = (mean.defined() ? 2 : 1) * x.dim(-1);
  const float* means = mean.defined() ? mean.data<float>() : nullptr;
  run.threads().run_chunked(
      rows, sums.defined() ? block : kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        float* of_block = sums.defined() ? sums.data<float>() + begin / block * stride : nullptr;
        HWY_DYNAMIC_DISPATCH(BackwardRows)
        (scale, x, weight, means, rstd.data<float>(), dy, dresidual, dx, begin, end, of_block);
      });
}

void add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias) {
  const std::int64_t C = dweight.num_elements();
  const std::int64_t stride = sums.dim(1) * C;
  add_partials(run, sums.data<float>(), norm_row_blocks(rows), stride, dweight);
  if (!dbias.defined()) return;
  add_partials(run, sums.data<float>() + C, norm_row_blocks(rows), stride, dbias);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
