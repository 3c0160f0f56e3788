#pragma once

// Embeddings as their definitions say, for any storage; tokens are already checked.

#include "atoll/ops/positions.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// y[b, t] = table[tokens[b, t]]; y of T, or of its compute type.
template <typename T, typename Y = T>
void embedding_forward(Tensor tokens, Tensor table, Tensor y) {
  const std::int64_t C = table.dim(1);
  for (std::int64_t row = 0; row < tokens.num_elements(); ++row) {
    const std::int64_t token = tokens.data<std::int32_t>()[row];
    for (std::int64_t c = 0; c < C; ++c) {
      y.data<Y>()[row * C + c] = narrow<Y>(widen(table.data<T>()[token * C + c]));
    }
  }
}

/// dtable[tokens[b, t]] += dy[b, t], in (b, t) order.
template <typename T>
void embedding_backward(Tensor tokens, Tensor dy, Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  for (std::int64_t row = 0; row < tokens.num_elements(); ++row) {
    const std::int64_t token = tokens.data<std::int32_t>()[row];
    for (std::int64_t c = 0; c < C; ++c) {
      dtable.data<Compute<T>>()[token * C + c] += widen(dy.data<T>()[row * C + c]);
    }
  }
}

/// y[b, t] += table[positions[b, t]].
template <typename T>
void position_embedding_forward(Tensor positions, Tensor table, Tensor y) {
  const std::int64_t C = table.dim(1);
  const std::int32_t* at = position_data(positions);
  for (std::int64_t row = 0; row < y.shape().num_rows(); ++row) {
    const std::int64_t position = position_of(at, row, y.dim(1));
    for (std::int64_t c = 0; c < C; ++c) {
      T& sum = y.data<T>()[row * C + c];
      sum = narrow<T>(widen(sum) + widen(table.data<T>()[position * C + c]));
    }
  }
}

/// dtable[positions[b, t]] += dy[b, t], in (b, t) order.
template <typename T>
void position_embedding_backward(Tensor positions, Tensor dy, Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  const std::int32_t* at = position_data(positions);
  for (std::int64_t row = 0; row < dy.shape().num_rows(); ++row) {
    const std::int64_t position = position_of(at, row, dy.dim(1));
    for (std::int64_t c = 0; c < C; ++c) {
      dtable.data<Compute<T>>()[position * C + c] += widen(dy.data<T>()[row * C + c]);
    }
  }
}

}  // namespace atl::ops::ref
