#pragma once

// The K types of GGUF files, written: Q3_K, Q4_K, Q5_K and Q6_K. The layouts are those of ggml's
// ggml-common.h; ggml_types.cpp reads them, ggml_encode.h checks what it gives.

#include <cstdint>
#include <span>

#include "atoll/ckpt/gguf/ggml_types.h"

namespace atl::ckpt {

/// Whether encode_k_block writes this type.
bool is_k_type(GgmlType type);

/// Writes a super-block of 256 finite numbers.  x: (256)  importance: (256) or empty  out:
/// ggml_layout(type).block_bytes.
///
/// The sum of w (x - y)^2 is made small, y being what a reader gets. w is the importance of the
/// number's column, with a hundredth of the mean added: a column that the text hardly used
/// may be used by another. Without importance w = x^2 + mean of x^2: a large weight moves its
/// output in proportion, and small ones still count. The caller sees to it that the scales fit f16.
void encode_k_block(GgmlType type, std::span<const float> x, std::span<const float> importance,
                    std::uint8_t* out);

}  // namespace atl::ckpt
