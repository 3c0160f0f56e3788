#pragma once

// The norm of query and key heads as its definition says, for any storage, in its compute type.

#include <algorithm>

#include "atoll/ops/norm/ref.h"
#include "atoll/ops/rope/rope.h"

namespace atl::ops::ref {

/// Calls fn(offset of a query or key head in qkv, its place in rstd, whether it is a key head) for
/// every row and every such head, and copy(offset of the row's value heads) for every row.
template <typename Fn, typename Copy>
void for_qk_heads(const HeadLayout& heads, std::int64_t num_rows, Fn&& fn, Copy&& copy) {
  const std::int64_t normed = heads.num_heads + heads.num_kv_heads;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t head = 0; head < normed; ++head) {
      fn(row * heads.qkv_width() + head * heads.head_dim, row * normed + head,
         head >= heads.num_heads);
    }
    copy(row * heads.qkv_width() + normed * heads.head_dim);
  }
}

/// Arguments as in ops/norm/norm.h.
template <typename T>
void qk_norm_forward(const HeadLayout& heads, const RmsScale& scale, Tensor x, Tensor q_weight,
                     Tensor k_weight, Tensor y, Tensor rstd) {
  using A = Compute<T>;
  const Spec head = {dtype_of<T>(), {heads.head_dim}};
  for_qk_heads(
      heads, x.shape().num_rows(),
      [&](std::int64_t at, std::int64_t statistic, bool is_key) {
        rms_norm_forward<T>(scale, {x.data<T>() + at, head}, is_key ? k_weight : q_weight,
                            {y.data<T>() + at, head},
                            {rstd.data<A>() + statistic, {dtype_of<A>(), {1}}});
      },
      [&](std::int64_t at) { std::copy_n(x.data<T>() + at, heads.kv_width(), y.data<T>() + at); });
}

/// Arguments as in ops/norm/norm.h.
template <typename T>
void qk_norm_backward(const HeadLayout& heads, const RmsScale& scale, Tensor x, Tensor q_weight,
                      Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx, Tensor dweights) {
  using A = Compute<T>;
  const Spec head = {dtype_of<T>(), {heads.head_dim}};
  std::fill_n(dweights.data<A>(), 2 * heads.head_dim, A{0});
  for_qk_heads(
      heads, x.shape().num_rows(),
      [&](std::int64_t at, std::int64_t statistic, bool is_key) {
        const Tensor x_head(x.data<T>() + at, head);
        const Tensor dy_head(dy.data<T>() + at, head);
        const Tensor r(rstd.data<A>() + statistic, {dtype_of<A>(), {1}});
        // The weight first: dx may be dy.
        rms_norm_backward_weight<T>(
            x_head, r, dy_head,
            {dweights.data<A>() + (is_key ? heads.head_dim : 0), head.in_compute_dtype()});
        rms_norm_backward_input<T>(scale, x_head, is_key ? k_weight : q_weight, r, dy_head,
                                   {dx.data<T>() + at, head});
      },
      [&](std::int64_t at) {
        if (dx.raw() == dy.raw()) return;
        std::copy_n(dy.data<T>() + at, heads.kv_width(), dx.data<T>() + at);
      });
}

}  // namespace atl::ops::ref
