#pragma once

// What matrices of numbers of 8 bits are made of, for the host and for kernels.

#include <cstdint>

namespace atl::ops {

/// e4m3: 4 bits of exponent and 3 of fraction, up to 448, no infinity. e5m2: up to 57344.
enum class Fp8Format : std::uint8_t { kE4M3, kE5M2 };

/// What shares a scale: all of a matrix; or each 128 neighbours along k, of weights each block of
/// 128 x 128 (DeepSeek-AI 2024, "DeepSeek-V3", section 3.3).
enum class Fp8Scaling : std::uint8_t { kTensor, kBlocks };

/// What shares a scale in one matrix.
enum class Fp8Tile : std::uint8_t { kTensor, kRow, kBlock };

/// What a GPU adds products up in: f32, or registers of tensor cores that have fewer bits and are
/// faster (on Hopper; cuBLASLt's "fast accumulation").
enum class Fp8Sums : std::uint8_t { kExact, kFast };

/// Neighbours that share a scale where not all do.
constexpr std::int64_t kFp8Block = 128;
/// Each dim of an operand is a multiple of it: tensor cores take 16 bytes.
constexpr std::int64_t kFp8Multiple = 16;

/// Parts of kFp8Block, the last one smaller.
constexpr std::int64_t num_fp8_blocks(std::int64_t count) {
  return (count + kFp8Block - 1) / kFp8Block;
}
/// How far apart rows of scales of blocks lie: cuBLASLt wants multiples of 4.
constexpr std::int64_t fp8_scales_stride(std::int64_t k) {
  return (num_fp8_blocks(k) + 3) / 4 * 4;
}

}  // namespace atl::ops
