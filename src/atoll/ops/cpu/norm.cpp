#include "atoll/ops/cpu/norm.h"

#include <algorithm>
#include <cmath>

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/norm.cpp"
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
void rms_row(float eps, const T* x, const T* w, std::size_t C, T* y, float* rstd) {
  const F32 d;
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf v = lanes.load(x + i);
    sum.first = hn::MulAdd(v, v, sum.first);
  });
  *rstd = 1.0F / std::sqrt(sums.first / static_cast<float>(C) + eps);
  const Vf r = hn::Set(d, *rstd);
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Mul(hn::Mul(lanes.load(x + i), r), lanes.load(w + i)), y + i);
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
void rms_input_row(const T* x, const T* w, float rstd, const T* dy, std::size_t C, T* dx) {
  const F32 d;
  const Vf r = hn::Set(d, rstd);
  const TwoSums sums = sum_lanes(C, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), lanes.load(w + i));
    sum.first = hn::MulAdd(g, lanes.load(x + i), sum.first);
  });
  const Vf scale = hn::Set(d, sums.first * rstd * rstd / static_cast<float>(C));
  for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(dy + i), lanes.load(w + i));
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

// dweight = sum over `rows` rows of dy * x * rstd.
template <class T>
void rms_weight_block(const T* x, const float* rstd, const T* dy, std::size_t rows, std::size_t C,
                      float* dweight) {
  const F32 d;
  std::memset(dweight, 0, C * sizeof(float));
  for (std::size_t row = 0; row < rows; ++row, x += C, dy += C) {
    const Vf r = hn::Set(d, rstd[row]);
    for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf xhat = hn::Mul(lanes.load(x + i), r);
      lanes.store(hn::MulAdd(lanes.load(dy + i), xhat, lanes.load(dweight + i)), dweight + i);
    });
  }
}

// dweight = sum over `rows` rows of dy * (x - mean) * rstd; dbias = sum of dy.
template <class T>
void layer_weight_block(const T* x, const float* mean, const float* rstd, const T* dy,
                        std::size_t rows, std::size_t C, float* dweight, float* dbias) {
  const F32 d;
  std::memset(dweight, 0, C * sizeof(float));
  std::memset(dbias, 0, C * sizeof(float));
  for (std::size_t row = 0; row < rows; ++row, x += C, dy += C) {
    const Vf m = hn::Set(d, mean[row]);
    const Vf r = hn::Set(d, rstd[row]);
    for_lanes(C, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf g = lanes.load(dy + i);
      const Vf xhat = hn::Mul(hn::Sub(lanes.load(x + i), m), r);
      lanes.store(hn::MulAdd(g, xhat, lanes.load(dweight + i)), dweight + i);
      lanes.store(hn::Add(g, lanes.load(dbias + i)), dbias + i);
    });
  }
}

// The rows [begin, end) of a whole tensor.

void RmsRows(double eps, const Tensor& x, const Tensor& weight, const Tensor& y, float* rstd,
             std::int64_t begin, std::int64_t end) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      rms_row(static_cast<float>(eps), x.data<T>() + row * C, weight.data<T>(),
              static_cast<std::size_t>(C), y.data<T>() + row * C, rstd + row);
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

void RmsInputRows(const Tensor& x, const Tensor& weight, const float* rstd, const Tensor& dy,
                  const Tensor& dx, std::int64_t begin, std::int64_t end) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      rms_input_row(x.data<T>() + row * C, weight.data<T>(), rstd[row], dy.data<T>() + row * C,
                    static_cast<std::size_t>(C), dx.data<T>() + row * C);
    }
  });
}

void LayerInputRows(const Tensor& x, const Tensor& weight, const float* mean, const float* rstd,
                    const Tensor& dy, const Tensor& dx, std::int64_t begin, std::int64_t end) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      layer_input_row(x.data<T>() + row * C, weight.data<T>(), mean[row], rstd[row],
                      dy.data<T>() + row * C, static_cast<std::size_t>(C), dx.data<T>() + row * C);
    }
  });
}

void RmsWeightRows(const Tensor& x, const float* rstd, const Tensor& dy, std::int64_t begin,
                   std::int64_t end, float* dweight) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    rms_weight_block(x.data<T>() + begin * C, rstd + begin, dy.data<T>() + begin * C,
                     static_cast<std::size_t>(end - begin), static_cast<std::size_t>(C), dweight);
  });
}

void LayerWeightRows(const Tensor& x, const float* mean, const float* rstd, const Tensor& dy,
                     std::int64_t begin, std::int64_t end, float* dweight, float* dbias) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    layer_weight_block(x.data<T>() + begin * C, mean + begin, rstd + begin,
                       dy.data<T>() + begin * C, static_cast<std::size_t>(end - begin),
                       static_cast<std::size_t>(C), dweight, dbias);
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
HWY_EXPORT(RmsInputRows);
HWY_EXPORT(LayerInputRows);
HWY_EXPORT(RmsWeightRows);
HWY_EXPORT(LayerWeightRows);
HWY_EXPORT(AddPartials);

constexpr std::int64_t kRowsPerTask = 16;
constexpr std::int64_t kColumnsPerTask = 256;
// More blocks feed more threads and cost more memory and adding up.
constexpr std::int64_t kMaxBlocks = 64;
constexpr std::int64_t kMinRowsPerBlock = 16;

std::int64_t rows_per_block(std::int64_t rows) {
  return std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks);
}

std::int64_t count_blocks(std::int64_t rows) {
  return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
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

std::size_t norm_scratch_bytes(const Spec& x) {
  const std::int64_t C = x.shape.dim(-1);
  return align_up(Spec{Dtype::kF32, {count_blocks(x.shape.num_rows()), 2 * C}}.bytes());
}

void rms_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor y, Tensor rstd) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(RmsRows)(eps, x, weight, y, rstd.data<float>(), begin, end);
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

void rms_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(RmsInputRows)(x, weight, rstd.data<float>(), dy, dx, begin, end);
      });
}

void layer_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                               Tensor dy, Tensor dx) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(LayerInputRows)
        (x, weight, mean.data<float>(), rstd.data<float>(), dy, dx, begin, end);
      });
}

void rms_norm_backward_weight(Run& run, Tensor x, Tensor rstd, Tensor dy, Tensor dweight) {
  const std::int64_t C = x.dim(-1);
  const std::int64_t rows = x.shape().num_rows();
  Run inner = run;
  float* partials = inner.take_scratch({Dtype::kF32, {count_blocks(rows), C}}).data<float>();
  run.threads().run_chunked(rows, rows_per_block(rows), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsWeightRows)
    (x, rstd.data<float>(), dy, begin, end, partials + begin / rows_per_block(rows) * C);
  });
  add_partials(run, partials, count_blocks(rows), C, dweight);
}

void layer_norm_backward_weight(Run& run, Tensor x, Tensor mean, Tensor rstd, Tensor dy,
                                Tensor dweight, Tensor dbias) {
  const std::int64_t C = x.dim(-1);
  const std::int64_t rows = x.shape().num_rows();
  Run inner = run;
  float* partials = inner.take_scratch({Dtype::kF32, {count_blocks(rows), 2 * C}}).data<float>();
  run.threads().run_chunked(rows, rows_per_block(rows), [&](std::int64_t begin, std::int64_t end) {
    float* dweight_block = partials + begin / rows_per_block(rows) * 2 * C;
    HWY_DYNAMIC_DISPATCH(LayerWeightRows)
    (x, mean.data<float>(), rstd.data<float>(), dy, begin, end, dweight_block, dweight_block + C);
  });
  add_partials(run, partials, count_blocks(rows), 2 * C, dweight);
  add_partials(run, partials + C, count_blocks(rows), 2 * C, dbias);
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
