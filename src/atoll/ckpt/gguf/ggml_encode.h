#pragma once

// Tensor types of GGUF files, written.

#include <cstddef>
#include <span>
#include <string_view>

#include "atoll/ckpt/gguf/ggml_types.h"

namespace atl::ckpt {

/// Whether encode() writes this type: f32, f16, bf16, Q8_0, MXFP4 and the K types from Q3_K to
/// Q6_K.
bool can_encode(GgmlType type);
/// Writes a row. Plain floats are rounded to the nearest. Q8_0 is rounded as ggml's reference does
/// (quantize_row_q8_0_ref): scale max|x| / 127, kept as f16, and quotients by the unrounded scale
/// to the nearest, halves away from zero. So is MXFP4 (quantize_row_mxfp4_ref): scale 2^(floor(log2
/// max|x|) - 2), then the nearest number; what is 6 to 8 scales becomes 6. The K types take the
/// integers of least squared error, each number's weighted by the importance of its column
/// (k_quants.h).  importance: empty, or one number of 0 or more for each of the row. Throws
/// Error(kUser) naming `tensor` and the value for what the type cannot hold: in types with scales
/// what is not finite or larger than 127 * 65504 (K types: 31 * 65504; MXFP4: nothing), in f16 what
/// is larger than 65504.
void encode(GgmlType type, std::span<const float> row, std::span<std::byte> out,
            std::string_view tensor, std::span<const float> importance = {});

}  // namespace atl::ckpt
