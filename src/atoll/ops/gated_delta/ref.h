#pragma once

// The definitions of gated_delta.h. A thread has all tokens of one head of one sequence.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "atoll/ops/gated_delta/gated_delta.h"

namespace atl::ops::ref {

/// The rows of one head of one sequence.
template <typename T>
struct GatedDeltaHead {
  std::int64_t batch = 0, head = 0, length = 0, heads = 0, keys = 0, values = 0;

  GatedDeltaHead(const GatedDelta& in, std::int64_t index)
      : batch(index / in.q.dim(2)),
        head(index % in.q.dim(2)),
        length(in.q.dim(1)),
        heads(in.q.dim(2)),
        keys(in.q.dim(3)),
        values(in.v.dim(3)) {}

  T* row(const Tensor& tensor, std::int64_t t, std::int64_t width) const {
    return tensor.data<T>() + ((batch * length + t) * heads + head) * width;
  }
  /// The matrix after so many tokens.
  T* state(const Tensor& states, std::int64_t tokens) const {
    return states.data<T>() + ((batch * heads + head) * (length + 1) + tokens) * keys * values;
  }
};

template <typename T>
void gated_delta_forward(Run& run, const GatedDelta& in, Tensor states, Tensor y) {
  run.threads().run(in.q.dim(0) * in.q.dim(2), [&](std::int64_t index) {
    const GatedDeltaHead<T> at(in, index);
    std::vector<T> written(static_cast<std::size_t>(at.values));
    for (std::int64_t t = 0; t < at.length; ++t) {
      const T *q = at.row(in.q, t, at.keys), *k = at.row(in.k, t, at.keys);
      const T *v = at.row(in.v, t, at.values), *before = at.state(states, t);
      const T fade = std::exp(*at.row(in.g, t, 1)), beta = *at.row(in.beta, t, 1);
      T* after = at.state(states, t + 1);
      T* out = at.row(y, t, at.values);
      for (std::int64_t j = 0; j < at.values; ++j) {
        T said = 0;
        for (std::int64_t i = 0; i < at.keys; ++i) said += fade * before[i * at.values + j] * k[i];
        written[static_cast<std::size_t>(j)] = beta * (v[j] - said);
        out[j] = 0;
      }
      for (std::int64_t i = 0; i < at.keys; ++i) {
        for (std::int64_t j = 0; j < at.values; ++j) {
          const std::int64_t e = i * at.values + j;
          after[e] = fade * before[e] + k[i] * written[static_cast<std::size_t>(j)];
          out[j] += after[e] * q[i];
        }
      }
    }
  });
}

template <typename T>
void gated_delta_backward(Run& run, const GatedDelta& in, Tensor states, Tensor dy,
                          const GatedDelta& gradients) {
  run.threads().run(in.q.dim(0) * in.q.dim(2), [&](std::int64_t index) {
    const GatedDeltaHead<T> at(in, index);
    const std::int64_t K = at.keys, V = at.values;
    std::vector<T> dstate(static_cast<std::size_t>(K * V));  // of the matrix after token t
    std::vector<T> left(static_cast<std::size_t>(V)), dwritten(left);
    for (std::int64_t t = at.length - 1; t >= 0; --t) {
      const T *q = at.row(in.q, t, K), *k = at.row(in.k, t, K), *v = at.row(in.v, t, V);
      const T *before = at.state(states, t), *after = at.state(states, t + 1);
      const T *dout = at.row(dy, t, V), fade = std::exp(*at.row(in.g, t, 1));
      const T beta = *at.row(in.beta, t, 1);
      T *dq = at.row(gradients.q, t, K), *dk = at.row(gradients.k, t, K);
      T* dv = at.row(gradients.v, t, V);
      std::fill_n(dq, K, T{});
      std::fill_n(dk, K, T{});
      T dbeta = 0, dfade = 0;
      for (std::int64_t j = 0; j < V; ++j) {
        T said = 0, of_written = 0;
        for (std::int64_t i = 0; i < K; ++i) {
          T& d = dstate[static_cast<std::size_t>(i * V + j)];
          dq[i] += after[i * V + j] * dout[j];
          d += q[i] * dout[j];
          said += fade * before[i * V + j] * k[i];
          of_written += d * k[i];
        }
        left[static_cast<std::size_t>(j)] = v[j] - said;
        dwritten[static_cast<std::size_t>(j)] = of_written;
        dbeta += of_written * (v[j] - said);
        dv[j] = beta * of_written;
      }
      for (std::int64_t i = 0; i < K; ++i) {
        for (std::int64_t j = 0; j < V; ++j) {
          const std::int64_t e = i * V + j;
          T& d = dstate[static_cast<std::size_t>(e)];
          // k writes, and k asks what the matrix said.
          dk[i] += d * beta * left[static_cast<std::size_t>(j)] - fade * before[e] * dv[j];
          d -= k[i] * dv[j];
          dfade += d * before[e];
          d *= fade;
        }
      }
      *at.row(gradients.beta, t, 1) = dbeta;
      *at.row(gradients.g, t, 1) = dfade * fade;
    }
  });
}

}  // namespace atl::ops::ref
