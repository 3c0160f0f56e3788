#pragma once

#include "atoll/ops/cross_entropy/args.h"

namespace atl::ops::cuda {

/// See ops/cross_entropy/cross_entropy.h. Logits have the dtype of x. Rows are taken in chunks, or
/// in fewer at once where the scratch has less room than is planned.
Declined cross_entropy(Run& run, const CrossEntropyArgs& args);

/// Rows whose logits are held at once; a function of the shape alone, as the order of sums hangs on
/// it. Each chunk reads and writes the whole of the weight's gradient in f32, which a GPU's caches
/// do not hold. So chunks are even, and have up to 4 GiB of logits, or 4096 rows where these have
/// more.
std::int64_t cross_entropy_chunk_rows(Dtype dtype, std::int64_t rows, std::int64_t vocab);
/// The same where a row takes so many bytes.
std::int64_t logits_chunk_rows(std::int64_t row_bytes, std::int64_t rows);
/// Bytes of the logits of a chunk.
std::size_t cross_entropy_scratch_bytes(Dtype dtype, std::int64_t rows, std::int64_t vocab);

}  // namespace atl::ops::cuda
