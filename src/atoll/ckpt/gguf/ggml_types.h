#pragma once

// Tensor types of GGUF files: plain floats, and blocks of small integers with their scales. The
// layouts are those of the ggml library (its ggml-common.h), little-endian.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "atoll/tensor/spec.h"

namespace atl::ckpt {

/// The types that atoll reads, numbered as in the file.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
  kMxfp4 = 39,
};

/// How a type lies in memory.
struct GgmlLayout {
  std::string_view name;            ///< "Q4_1"
  std::int64_t block_elements = 1;  ///< rows are whole blocks of so many elements
  std::size_t block_bytes = 0;
};

/// The type that a file numbers so, if atoll reads it.
std::optional<GgmlType> ggml_type(std::uint32_t number);
/// The dtype of a type without blocks.
std::optional<Dtype> plain_dtype(GgmlType type);
/// The layout of a type.
GgmlLayout ggml_layout(GgmlType type);
/// Bytes of a row of `width` elements, a multiple of the block.
std::size_t ggml_row_bytes(GgmlType type, std::int64_t width);

/// What the 16 codes of MXFP4 stand for, doubled; the ninth is a zero, too, and positive as in
/// ggml.
inline constexpr std::int8_t kMxfp4Numbers[] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};
/// Half of the power of two that a block's first byte is: 2^(exponent - 128).
float mxfp4_scale(std::uint8_t exponent);

/// Reads a row of whole blocks, at any alignment, bit for bit as ggml's dequantize_row_* do: every
/// product is exact in f32, and the one sum rounds once. Throws Error(kInternal) when the sizes do
/// not agree.
void dequantize(GgmlType type, std::span<const std::byte> row, std::span<float> out);

}  // namespace atl::ckpt
