#pragma once

// A checked linear_cross_entropy call, as its implementations see it.

#include <algorithm>

#include "atoll/ops/implementations.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {

/// Operands that fit each other; without dx there is no dweight either.
struct CrossEntropyArgs {
  std::int64_t rows = 0;   ///< R
  std::int64_t width = 0;  ///< C
  std::int64_t vocab = 0;  ///< V
  double factor = 1;
  double grad_scale = 1;  ///< factor * Run::loss_scale
  Tensor x;
  Tensor weight;
  const std::int32_t* targets = nullptr;
  Tensor loss;
  Tensor dx;
  Tensor dweight;

  bool wants_gradients() const { return dx.defined(); }
  bool wants_dweight() const { return dweight.defined(); }
};

/// Throws Error(kDamaged) naming the first row whose target is no token of the vocabulary.
inline void check_targets(const std::int32_t* targets, std::int64_t rows, std::int64_t vocab) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t target = targets[row];
    if (target == kIgnoreTarget || (target >= 0 && target < vocab)) continue;
    throw damaged_error(
        "row {} of the batch has target {}, but the model's vocabulary is [0, {}); tokenize the "
        "data with this model's tokenizer",
        row, target, vocab);
  }
}
inline void check_targets(const CrossEntropyArgs& args) {
  check_targets(args.targets, args.rows, args.vocab);
}
/// The same for targets in memory of the host, i32.
inline void check_targets(const Tensor& targets, std::int64_t vocab) {
  check_targets(targets.data<std::int32_t>(), targets.num_elements(), vocab);
}

/// Rows whose logits are held at once; a function of the shape alone. Each chunk reads and writes
/// the whole of dweight, so chunks are as large as 128 MiB of f32 logits allow, up to 512 rows.
inline std::int64_t cross_entropy_chunk_rows(std::int64_t rows, std::int64_t vocab) {
  constexpr std::int64_t kMaxLogits = std::int64_t{32} << 20;
  const std::int64_t fit = kMaxLogits / std::max<std::int64_t>(vocab, 1) / 16 * 16;
  const std::int64_t most = std::clamp<std::int64_t>(fit, 64, 512);
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  const std::int64_t even = (rows + chunks - 1) / chunks;
  return std::min(rows, (even + 15) / 16 * 16);
}

}  // namespace atl::ops
