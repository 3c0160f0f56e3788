#pragma once

// Codes of 4 and 8 bits, an element at a time: ops/codes/codes.h.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "atoll/ops/codes/code_numbers.h"
#include "atoll/ops/codes/codes.h"

namespace atl::ops::ref {

/// The byte of element i of a block of n, and whether it is the byte's upper half.
struct CodePlace {
  std::int64_t byte = 0;
  bool is_high = false;
};
inline CodePlace place_of(int bits, std::int64_t i, std::int64_t n) {
  if (bits == 8) return {i, false};
  const std::int64_t half = (n + 1) / 2;
  return i < half ? CodePlace{i, false} : CodePlace{i - half, true};
}

inline std::int32_t largest_magnitude(std::span<const float> x) {
  std::int32_t largest = 0;
  for (const float one : x) largest = std::max(largest, magnitude_bits(one));
  return largest;
}

/// Rounds to a grid of their own: compress::round_residual.
inline void round_residual(std::span<float> residual) {
  const std::int32_t largest = largest_magnitude(residual);
  if (largest >= kCodeLimitBits) return;
  const float offset = grid_offset(largest);
  for (float& one : residual) one = (one + offset) - offset;
}

inline void encode_block(int bits, std::span<const float> wanted, std::uint8_t* out,
                         std::span<float> rest) {
  const auto n = static_cast<std::int64_t>(wanted.size());
  const CodeScale scale = code_scale(bits, largest_magnitude(wanted));
  std::memcpy(out, &scale.value, sizeof scale.value);
  out += sizeof scale.value;
  const std::int64_t half = (n + 1) / 2;
  std::fill_n(out, bits == 8 ? n : half,
              static_cast<std::uint8_t>(bits == 4 && scale.is_encodable ? 0x88 : 0));
  if (!scale.is_encodable) return;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int code = static_cast<int>(std::nearbyint(wanted[at] * scale.inverse));
    const CodePlace place = place_of(bits, i, n);
    std::uint8_t& byte = out[place.byte];
    if (bits == 8) {
      byte = static_cast<std::uint8_t>(code);
    } else {
      byte = static_cast<std::uint8_t>(place.is_high ? (byte & 15) | ((code + 8) << 4)
                                                     : (byte & 240) | (code + 8));
    }
    rest[at] = wanted[at] - static_cast<float>(code) * scale.value;
  }
  round_residual(rest);
}

inline void encode_codes(const EncodeCodes& a) {
  const std::int64_t block_bytes = 4 + kCodeBlock * a.bits / 8;
  const auto* piece = a.pieces.data<std::int64_t>();
  for (std::int64_t p = 0; p < a.pieces.dim(0); ++p, piece += kPieceColumns) {
    for (std::int64_t at = 0; at < piece[kPieceCount]; at += kCodeBlock) {
      const std::int64_t first = piece[kPieceBegin] + at;
      const auto n = static_cast<std::size_t>(std::min(kCodeBlock, piece[kPieceCount] - at));
      std::array<float, kCodeBlock> wanted = {}, rest = {};
      for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t e = first + static_cast<std::int64_t>(i);
        wanted[i] = a.x.data<float>()[e - a.x_first];
        if (a.residual.defined()) wanted[i] += a.residual.data<float>()[e];
        if (a.minus.defined()) wanted[i] -= a.minus.data<float>()[e];
      }
      const std::span<const float> all = std::span(wanted).first(n);
      encode_block(a.bits, all,
                   a.codes.data<std::uint8_t>() + piece[kPieceByte] + at / kCodeBlock * block_bytes,
                   std::span(rest).first(n));
      if (!a.residual.defined() || largest_magnitude(all) >= kCodeLimitBits) continue;
      std::copy_n(rest.begin(), n, a.residual.data<float>() + first);
    }
  }
}

/// The value of element i of a block of n.
inline float decode_one(int bits, const std::uint8_t* block, std::int64_t i, std::int64_t n) {
  float scale = 0;
  std::memcpy(&scale, block, sizeof scale);
  const CodePlace place = place_of(bits, i, n);
  const std::uint8_t byte = block[sizeof scale + static_cast<std::size_t>(place.byte)];
  const int code =
      bits == 8 ? static_cast<std::int8_t>(byte) : (place.is_high ? byte >> 4 : byte & 15) - 8;
  return value_of_code(bits, code, scale);
}

inline void decode_codes(const DecodeCodes& a) {
  const std::int64_t block_bytes = 4 + kCodeBlock * a.bits / 8;
  const auto* piece = a.pieces.data<std::int64_t>();
  for (std::int64_t p = 0; p < a.pieces.dim(0); ++p, piece += kPieceColumns) {
    for (std::int64_t i = 0; i < piece[kPieceCount]; ++i) {
      const std::int64_t block = i / kCodeBlock;
      const std::int64_t n = std::min(kCodeBlock, piece[kPieceCount] - block * kCodeBlock);
      float& to = a.to.data<float>()[piece[kPieceBegin] + i - a.to_first];
      for (std::int64_t source = 0; source < a.sources; ++source) {
        const std::uint8_t* from = a.codes.data<std::uint8_t>() + source * a.source_bytes +
                                   piece[kPieceByte] - a.byte_first + block * block_bytes;
        const float value = decode_one(a.bits, from, i % kCodeBlock, n);
        to = source == 0 && !a.adds ? value : to + value;
      }
    }
  }
}

}  // namespace atl::ops::ref
