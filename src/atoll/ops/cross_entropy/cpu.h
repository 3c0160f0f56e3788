#pragma once

#include "atoll/ops/cross_entropy/args.h"

namespace atl::ops::cpu {

/// Serves f32 in our own tiles and bf16: in tiles of AMX where bf16_arithmetic() says so, else the
/// logits by oneDNN and the rest widened. With AMX products see 16 bits of the logits' gradient,
/// and in all other cases all of it.
Declined cross_entropy(Run& run, const CrossEntropyArgs& args);
/// Of all rows of `args`, from logits (R, V), which become their gradient if one is wanted.
void losses_of_logits(Run& run, const CrossEntropyArgs& args, const Tensor& logits, bool gradient);
/// The scratch of cross_entropy for x of this dtype, rows R, a vocabulary V and width C, on the CPU
/// at hand.
std::size_t cross_entropy_scratch_bytes(Dtype dtype, std::int64_t rows, std::int64_t vocab,
                                        std::int64_t width);

}  // namespace atl::ops::cpu
