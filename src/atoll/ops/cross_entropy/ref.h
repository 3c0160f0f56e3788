#pragma once

// The reference of the final Linear with its cross-entropy, for any storage; the logits are in its
// compute type.

#include <algorithm>
#include <cmath>

#include "atoll/ops/cross_entropy/args.h"
#include "atoll/ops/matmul/ref.h"

namespace atl::ops::ref {

/// The loss of one row of V logits, which become grad_scale * d(loss)/d(logits).
template <typename T>
T cross_entropy_row(std::int64_t vocab, std::int32_t target, double grad_scale, T* logits) {
  if (target == kIgnoreTarget) {
    std::fill(logits, logits + vocab, T{0});
    return T{0};
  }
  // exp never sees a positive number: the largest logit is taken off first.
  const T max = *std::max_element(logits, logits + vocab);
  const T target_logit = logits[target] - max;
  T sum = 0;
  for (std::int64_t v = 0; v < vocab; ++v) {
    logits[v] = std::exp(logits[v] - max);
    sum += logits[v];
  }
  const T scale = static_cast<T>(grad_scale) / sum;
  for (std::int64_t v = 0; v < vocab; ++v) logits[v] *= scale;
  logits[target] -= static_cast<T>(grad_scale);
  return std::log(sum) - target_logit;
}

/// As ops::linear_cross_entropy; `logits` holds chunk_rows rows of V.
template <typename T>
void linear_cross_entropy(ThreadPool& threads, const CrossEntropyArgs& args,
                          std::int64_t chunk_rows, Compute<T>* logits) {
  using A = Compute<T>;
  const std::int64_t width = args.width;
  const std::int64_t vocab = args.vocab;
  const T* weight = args.weight.data<T>();
  for (std::int64_t begin = 0; begin < args.rows; begin += chunk_rows) {
    const std::int64_t rows = std::min(chunk_rows, args.rows - begin);
    const T* x = args.x.data<T>() + begin * width;
    A* loss = args.loss.data<A>() + begin;
    matmul<T, T, A>(threads, {Transpose::kNT, rows, vocab, width}, x, weight, logits, nullptr,
                    false);
    threads.run(rows, [&](std::int64_t row) {
      loss[row] = cross_entropy_row(vocab, args.targets[begin + row], args.grad_scale,
                                    logits + row * vocab);
    });
    if (!args.wants_gradients()) continue;
    matmul<A, T, T>(threads, {Transpose::kNN, rows, width, vocab}, logits, weight,
                    args.dx.data<T>() + begin * width, nullptr, false);
    if (!args.wants_dweight()) continue;
    matmul<A, T, A>(threads, {Transpose::kTN, vocab, width, rows}, logits, x,
                    args.dweight.data<A>(), nullptr, true);
  }
}

}  // namespace atl::ops::ref
