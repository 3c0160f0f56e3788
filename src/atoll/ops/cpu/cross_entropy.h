#pragma once

#include "atoll/ops/cross_entropy_args.h"

namespace atl::ops::cpu {

/// Serves f32, with the weight repacked once a call, and bf16: products by oneDNN, softmax by
/// Highway.
Declined cross_entropy(Run& run, const CrossEntropyArgs& args);
/// Scratch of cross_entropy in f32 beyond the logits of one chunk, for a vocabulary V and width C.
std::size_t cross_entropy_scratch_bytes(std::int64_t rows, std::int64_t vocab, std::int64_t width);

}  // namespace atl::ops::cpu
