#pragma once

// The reference of ops/embedding/vocabulary_part.h, in any float type. Statistics are in double.

#include <algorithm>
#include <cmath>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ops/embedding/vocabulary_part.h"
#include "atoll/ops/storage.h"
#include "atoll/tensor/batch.h"

namespace atl::ops::ref {

/// As ops::embedding_part_backward.
template <typename T>
void embedding_part_backward(const VocabularyPart& part, Tensor tokens, Tensor dy, Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  for (std::int64_t row = 0; row < tokens.num_elements(); ++row) {
    const std::int32_t token = tokens.data<std::int32_t>()[row];
    if (!part.contains(token)) continue;
    for (std::int64_t c = 0; c < C; ++c) {
      dtable.data<Compute<T>>()[(token - part.first) * C + c] += widen(dy.data<T>()[row * C + c]);
    }
  }
}

/// As ops::softmax_part.
template <typename T>
void softmax_part(ThreadPool& threads, const VocabularyPart& part, Tensor logits, Tensor targets,
                  Tensor statistics) {
  threads.run(logits.dim(0), [&](std::int64_t row) {
    T* x = logits.data<T>() + row * part.size;
    double* numbers = statistics.data<double>() + row * kNumSoftmaxStatistics;
    std::fill_n(numbers, kNumSoftmaxStatistics, 0.0);
    const std::int32_t target = targets.data<std::int32_t>()[row];
    if (target == kIgnoreTarget) return;
    const T max = *std::max_element(x, x + part.size);
    numbers[kMaxLogit] = max;
    if (part.contains(target)) numbers[kTargetLogit] = x[target - part.first];
    double sum = 0;
    for (std::int64_t v = 0; v < part.size; ++v) {
      x[v] = std::exp(x[v] - max);
      sum += x[v];
    }
    numbers[kSumExp] = sum;
  });
}

/// As ops::cross_entropy_part.
template <typename T>
void cross_entropy_part(ThreadPool& threads, const VocabularyPart& part, int index,
                        double grad_scale, Tensor statistics, Tensor targets, Tensor exps,
                        Tensor loss, bool gradient) {
  const std::int64_t rows = exps.dim(0);
  threads.run(rows, [&](std::int64_t row) {
    T* x = exps.data<T>() + row * part.size;
    const std::int32_t target = targets.data<std::int32_t>()[row];
    if (target == kIgnoreTarget) {
      loss.data<T>()[row] = 0;
      if (gradient) std::fill_n(x, part.size, T{0});
      return;
    }
    const auto of_part = [&](std::int64_t p) {
      return statistics.data<double>() + (p * rows + row) * kNumSoftmaxStatistics;
    };
    double max = of_part(0)[kMaxLogit];
    for (std::int64_t p = 1; p < statistics.dim(0); ++p) {
      max = std::max(max, of_part(p)[kMaxLogit]);
    }
    double sum = 0;
    double target_logit = 0;
    for (std::int64_t p = 0; p < statistics.dim(0); ++p) {
      sum += of_part(p)[kSumExp] * std::exp(of_part(p)[kMaxLogit] - max);
      target_logit += of_part(p)[kTargetLogit];
    }
    loss.data<T>()[row] = static_cast<T>(std::log(sum) - (target_logit - max));
    if (!gradient) return;
    const T scale = static_cast<T>(grad_scale * std::exp(of_part(index)[kMaxLogit] - max) / sum);
    for (std::int64_t v = 0; v < part.size; ++v) x[v] *= scale;
    if (part.contains(target)) x[target - part.first] -= static_cast<T>(grad_scale);
  });
}

}  // namespace atl::ops::ref
