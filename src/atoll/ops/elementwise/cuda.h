#pragma once

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/elementwise/elementwise.h.

/// b: as y, or a row that is added to each.
Declined add(Run& run, Tensor a, Tensor b, Tensor y);
Declined scale(Run& run, double factor, Tensor x, Tensor y);
Declined copy(Run& run, Tensor x, Tensor y);
Declined convert(Run& run, Tensor x, Tensor y);
Declined fill_zero(Run& run, Tensor x);
Declined dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, const RowPart& part);
/// Waits for the stream: the sums go to the host. Each block is summed by itself, in stretches of a
/// fixed length.
Declined sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks, std::span<double> sums);
Declined sum_of_squares(Run& run, Tensor x, double* sum);

}  // namespace atl::ops::cuda
