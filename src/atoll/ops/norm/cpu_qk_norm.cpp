#include "atoll/ops/norm/cpu_qk_norm.h"

#include <algorithm>
#include <cmath>

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/norm/cpu_qk_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// num_heads heads of D elements, one after the other, that share a weight.

template <class T>
void norm_heads(float eps, float offset, const T* x, const T* w, std::size_t num_heads,
                std::size_t D, T* y, float* rstd) {
  const F32 d;
  for (std::size_t head = 0; head < num_heads; ++head, x += D, y += D) {
    const TwoSums sums = sum_lanes(D, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
      const Vf v = lanes.load(x + i);
      sum.first = hn::MulAdd(v, v, sum.first);
    });
    rstd[head] = 1.0F / std::sqrt(sums.first / static_cast<float>(D) + eps);
    const Vf r = hn::Set(d, rstd[head]);
    for_lanes(D, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf size = hn::Add(hn::Set(d, offset), lanes.load(w + i));
      lanes.store(hn::Mul(hn::Mul(lanes.load(x + i), r), size), y + i);
    });
  }
}

// dweight += sum over the heads of dy * x * rstd; dx may be dy.
template <class T>
void norm_heads_gradient(float offset, const T* x, const T* w, const float* rstd, const T* dy,
                         std::size_t num_heads, std::size_t D, T* dx, float* dweight) {
  const F32 d;
  const Vf shift = hn::Set(d, offset);
  for (std::size_t head = 0; head < num_heads; ++head, x += D, dy += D, dx += D) {
    const Vf r = hn::Set(d, rstd[head]);
    const TwoSums sums = sum_lanes(D, [&](std::size_t i, auto lanes, TwoVectors& sum) HWY_ATTR {
      const Vf xhat = hn::Mul(lanes.load(x + i), r);
      const Vf slope = hn::Mul(lanes.load(dy + i), xhat);
      lanes.store(hn::Add(lanes.load(dweight + i), slope), dweight + i);
      sum.first = hn::MulAdd(slope, hn::Add(shift, lanes.load(w + i)), sum.first);
    });
    const Vf mean = hn::Set(d, sums.first / static_cast<float>(D));
    for_lanes(D, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf xhat = hn::Mul(lanes.load(x + i), r);
      const Vf g = hn::Mul(lanes.load(dy + i), hn::Add(shift, lanes.load(w + i)));
      lanes.store(hn::Mul(r, hn::NegMulAdd(xhat, mean, g)), dx + i);
    });
  }
}

// Where the heads of row `row` lie, in elements of a tensor and of the statistics.
struct RowOfHeads {
  RowOfHeads(const HeadLayout& heads, std::int64_t row)
      : q(row * heads.qkv_width()),
        k(q + heads.query_width()),
        v(k + heads.kv_width()),
        q_statistics(row * (heads.num_heads + heads.num_kv_heads)),
        k_statistics(q_statistics + heads.num_heads) {}

  std::int64_t q, k, v;
  std::int64_t q_statistics, k_statistics;
};

// Rows [begin, end) of a whole tensor.

void NormRows(const HeadLayout& heads, const RmsScale& scale, const Tensor& x,
              const Tensor& q_weight, const Tensor& k_weight, const Tensor& y, float* rstd,
              std::int64_t begin, std::int64_t end) {
  const auto D = static_cast<std::size_t>(heads.head_dim);
  const auto num_heads = static_cast<std::size_t>(heads.num_heads);
  const auto num_kv_heads = static_cast<std::size_t>(heads.num_kv_heads);
  const auto epsilon = static_cast<float>(scale.eps);
  const auto offset = static_cast<float>(scale.weight_offset);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      const RowOfHeads at(heads, row);
      norm_heads(epsilon, offset, from + at.q, q_weight.data<T>(), num_heads, D, to + at.q,
                 rstd + at.q_statistics);
      norm_heads(epsilon, offset, from + at.k, k_weight.data<T>(), num_kv_heads, D, to + at.k,
                 rstd + at.k_statistics);
      std::copy_n(from + at.v, heads.kv_width(), to + at.v);
    }
  });
}

// partial: (2, head_dim), the sums of both weights' gradients over these rows.
void NormRowsGradient(const HeadLayout& heads, const RmsScale& scale, const Tensor& x,
                      const Tensor& q_weight, const Tensor& k_weight, const float* rstd,
                      const Tensor& dy, const Tensor& dx, std::int64_t begin, std::int64_t end,
                      float* partial) {
  const auto D = static_cast<std::size_t>(heads.head_dim);
  const auto num_heads = static_cast<std::size_t>(heads.num_heads);
  const auto num_kv_heads = static_cast<std::size_t>(heads.num_kv_heads);
  const auto offset = static_cast<float>(scale.weight_offset);
  std::fill_n(partial, 2 * D, 0.0F);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    const T* from = x.data<T>();
    const T* slope = dy.data<T>();
    T* to = dx.data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      const RowOfHeads at(heads, row);
      norm_heads_gradient(offset, from + at.q, q_weight.data<T>(), rstd + at.q_statistics,
                          slope + at.q, num_heads, D, to + at.q, partial);
      norm_heads_gradient(offset, from + at.k, k_weight.data<T>(), rstd + at.k_statistics,
                          slope + at.k, num_kv_heads, D, to + at.k, partial + D);
      if (to != slope) std::copy_n(slope + at.v, heads.kv_width(), to + at.v);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(NormRows);
HWY_EXPORT(NormRowsGradient);

constexpr std::int64_t kRowsPerTask = 16;
// More blocks feed more threads and cost more adding up.
constexpr std::int64_t kMaxBlocks = 64;
constexpr std::int64_t kMinRowsPerBlock = 16;

std::int64_t rows_per_block(std::int64_t rows) {
  return std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks);
}

// One block's sums: (2, head_dim), and a gap, so that blocks of two threads share no cache line.
Spec partial_spec(const HeadLayout& heads, std::int64_t rows) {
  const std::int64_t num_blocks = (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
  return {Dtype::kF32, {num_blocks, 2 * heads.head_dim + 16}};
}

}  // namespace

std::size_t qk_norm_scratch_bytes(const HeadLayout& heads, const Spec& x) {
  return align_up(partial_spec(heads, x.shape.num_rows()).bytes());
}

void qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                     Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd) {
  run.threads().run_chunked(
      x.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(NormRows)
        (heads, scale, x, q_weight, k_weight, y, rstd.data<float>(), begin, end);
      });
}

void qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                      Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                      Tensor dweights) {
  const std::int64_t rows = x.shape().num_rows();
  const auto D = static_cast<std::size_t>(heads.head_dim);
  Run inner = run;
  const Tensor partials = inner.take_scratch(partial_spec(heads, rows));
  run.threads().run_chunked(rows, rows_per_block(rows), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormRowsGradient)
    (heads, scale, x, q_weight, k_weight, rstd.data<float>(), dy, dx, begin, end,
     partials.data<float>() + begin / rows_per_block(rows) * partials.dim(1));
  });
  // Little to add up: at most 64 blocks of two rows.
  float* total = dweights.data<float>();
  std::fill_n(total, 2 * D, 0.0F);
  for (std::int64_t block = 0; block < partials.dim(0); ++block) {
    const float* partial = partials.data<float>() + block * partials.dim(1);
    for (std::size_t i = 0; i < 2 * D; ++i) total[i] += partial[i];
  }
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
