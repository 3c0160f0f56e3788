#pragma once

// Elementwise ops of f32 and, but for the sum of squares, bf16 on vector units; arguments as in
// ops/elementwise/elementwise.h, already checked.

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::ops::cpu {

void add(Run& run, Tensor a, Tensor b, Tensor y);
void scale(Run& run, double factor, Tensor x, Tensor y);
/// Between f32 and bf16, either way.
void convert(Run& run, Tensor x, Tensor y);
/// Of a part, C is a multiple of 4.
void dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, RowPart part);
double sum_of_squares(Run& run, Tensor x);
void sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks, std::span<double> sums);

}  // namespace atl::ops::cpu
