#pragma once

#include <cstdint>
#include <span>

#include "atoll/base/rng.h"
#include "atoll/ops/run.h"
#include "atoll/tensor/sequence_part.h"

namespace atl::ops {

/// y = a + b, elementwise; y may be a or b. All of one dtype: f32, f64 or bf16, rounded once.
void add(Run& run, Tensor a, Tensor b, Tensor y);
/// y = x + bias, row by row; y may be x.  x, y: (..., C)  bias: (C). All of one dtype.
void add_bias(Run& run, Tensor x, Tensor bias, Tensor y);
/// y = factor x, rounded once, with `factor` in the compute dtype; y may be x. Of one dtype: f32,
/// f64 or bf16.
void scale(Run& run, double factor, Tensor x, Tensor y);
/// y = x; same dtype and number of elements, no overlap.
void copy(Run& run, Tensor x, Tensor y);
/// y = x with as many elements, no overlap: f32 to bf16 (rounded to nearest, ties to even), bf16 to
/// f32 (exactly), or a copy within one dtype.
void convert(Run& run, Tensor x, Tensor y);
/// x = 0.
void fill_zero(Run& run, Tensor x);

/// The draws of one sample in one dropout layer at one step:
/// RngStream(seed, kDropout, layer << 48 | step, sample). 0 <= layer < 2^16 and 0 <= step < 2^48.
RngStream dropout_stream(std::uint64_t seed, std::int64_t layer, std::int64_t step,
                         std::int64_t sample);

/// Which of `count` equal parts of a batch's rows, one after the other, a tensor holds. The batch's
/// rows are those of `tokens`.
struct RowPart {
  std::int64_t count = 1;
  std::int64_t index = 0;
  SequencePart tokens = {};
};

/// Inverted dropout: y = x / (1 - p) where the element's uniform draw is >= p, else 0; y may be x.
/// The draw is dropout_stream(...).uniform(element of the sample): a pure function, so the backward
/// pass (the same call on dy) and recompute repeat it, and ranks that share a sample draw what one
/// would.
/// x, y: (B, T, C) of one dtype, row b being global sample run.first_sample + b; or, of `part`, as
/// (B, R / part.count, C), the rows of that part of B * R, where R tokens of a sample are this
/// rank's. 0 <= p < 1.
void dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, RowPart part = {});

/// The sum of squares of all elements, in double, over fixed blocks in order: the thread count
/// changes no bit. x is f32 or f64. Infinite or NaN when an element is. Needs no scratch beyond the
/// stack.
double sum_of_squares(Run& run, Tensor x);

/// A stretch of a vector.
struct Block {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
/// sums[i] = the sum of squares of x's elements in blocks[i], in double; x is f32 or f64, flat. The
/// same for a block wherever it lies and whatever others there are.
void sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks, std::span<double> sums);

}  // namespace atl::ops
