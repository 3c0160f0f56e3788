#pragma once

// Codes of 4 and 8 bits: a block of threads for each piece, a warp for each block of 256 elements
// that has a scale. Operations are those of ops/ref in the same order. Pieces end anywhere, so that
// codes have no alignment: a warp writes 32 bytes that lie together, one each.

#include "atoll/ops/code_numbers.h"
#include "atoll/ops/codes_layout.h"
#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

constexpr int kCodeSlots = static_cast<int>(kCodeBlock) / kWarp;  // elements of a lane

ATOLL_DEVICE std::int32_t largest_of_warp(std::int32_t largest) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::int32_t other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  return largest;
}

ATOLL_DEVICE void store_float(const Global<std::uint8_t>& to, std::int64_t byte, float value) {
  if (lane() < 4) {
    to.store(byte + lane(),
             static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> (8 * lane())));
  }
}
ATOLL_DEVICE float load_float(const Global<const std::uint8_t>& from, std::int64_t byte) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= std::uint32_t{from.load(byte + i)} << (8 * i);
  return std::bit_cast<float>(bits);
}

/// Where a lane's elements and codes are in a block of `size` elements.
template <int kBits>
struct CodeSlots {
  int size;

  /// Bytes of codes.
  ATOLL_DEVICE int bytes() const { return kBits == 8 ? size : (size + 1) / 2; }
  /// The byte of a slot; of 4 bits, slots s and s + 4 share one.
  ATOLL_DEVICE int byte(int slot) const {
    return (kBits == 8 ? slot : slot % (kCodeSlots / 2)) * kWarp + lane();
  }
  /// The element of a slot; `size` and more: none.
  ATOLL_DEVICE int element(int slot) const {
    const int at = byte(slot), end = bytes();
    if (kBits == 8 || slot < kCodeSlots / 2) return at < end ? at : size;
    return end + at;
  }
};

/// A row of the table of pieces.
struct PieceRow {
  std::int64_t begin, count, byte;
};
ATOLL_DEVICE PieceRow load_piece(const Global<const std::int64_t>& pieces, std::int64_t row) {
  const std::int64_t at = row * kPieceColumns;
  return {pieces.load(at + kPieceBegin), pieces.load(at + kPieceCount),
          pieces.load(at + kPieceByte)};
}

/// Calls each(first element, elements, first byte) for the blocks of this warp.
template <int kBits, typename Each>
ATOLL_DEVICE void for_code_blocks(const Global<const std::int64_t>& pieces, Each&& each) {
  constexpr std::int64_t kBytes = 4 + kCodeBlock * kBits / 8;
  const PieceRow piece = load_piece(pieces, block_x());
  const std::int64_t step = num_threads() / kWarp * kCodeBlock, end = piece.count;
  for (std::int64_t at = warp() * kCodeBlock; at < end; at += step) {
    const std::int64_t left = end - at;
    each(piece.begin + at, static_cast<int>(left < kCodeBlock ? left : kCodeBlock),
         piece.byte + at / kCodeBlock * kBytes);
  }
}

/// See ops/codes.h.
template <int kBits>
struct EncodeCodesKernel {
  static constexpr const char* kName = kBits == 4 ? "encode_int4" : "encode_int8";
  static constexpr int kMaxThreads = 256;
  Global<const std::int64_t> pieces;
  Global<const float> x;
  Global<const float> minus;  // or none
  Global<float> owed;         // or none
  Global<std::uint8_t> codes;
  std::int64_t x_first;

  ATOLL_DEVICE float wanted_of(std::int64_t e) const {
    const float value = x.load(e - x_first);
    if (owed.size > 0) return value + owed.load(e);
    return minus.size > 0 ? value - minus.load(e) : value;
  }
  ATOLL_DEVICE void store_codes(const CodeSlots<kBits>& slots, const int (&code)[kCodeSlots],
                                bool is_encodable, std::int64_t byte) const {
    constexpr int kBytes = kBits == 8 ? kCodeSlots : kCodeSlots / 2;
    ATOLL_UNROLL
    for (int slot = 0; slot < kBytes; ++slot) {
      const int both = kBits == 8
                           ? code[slot]
                           : (code[slot] + 8) | ((code[(slot + kBytes) % kCodeSlots] + 8) << 4);
      const int at = slots.byte(slot), end = slots.bytes();
      if (at < end) codes.store(byte + at, static_cast<std::uint8_t>(is_encodable ? both : 0));
    }
  }
  ATOLL_DEVICE void encode(std::int64_t first, int size, std::int64_t byte) const {
    const CodeSlots<kBits> slots{size};
    float wanted[kCodeSlots];
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slots.element(slot);
      wanted[slot] = 0;
      if (i < size) wanted[slot] = wanted_of(first + i);
      const std::int32_t bits = magnitude_bits(wanted[slot]);
      largest = bits > largest ? bits : largest;
    }
    const CodeScale scale = code_scale(kBits, largest_of_warp(largest));
    store_float(codes, byte, scale.value);
    int code[kCodeSlots];
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      code[slot] = scale.is_encodable ? static_cast<int>(rintf(wanted[slot] * scale.inverse)) : 0;
    }
    store_codes(slots, code, scale.is_encodable, byte + 4);
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      wanted[slot] -= static_cast<float>(code[slot]) * scale.value;
    }
    if (scale.is_encodable && owed.size > 0) owe(slots, wanted, first);
  }
  ATOLL_DEVICE void owe(const CodeSlots<kBits>& slots, const float (&rest)[kCodeSlots],
                        std::int64_t first) const {
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const std::int32_t bits = magnitude_bits(rest[slot]);
      largest = bits > largest ? bits : largest;
    }
    const float offset = grid_offset(largest_of_warp(largest));
    const int size = slots.size;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slots.element(slot);
      if (i < size) owed.store(first + i, (rest[slot] + offset) - offset);
    }
  }
  ATOLL_DEVICE void operator()() const {
    for_code_blocks<kBits>(pieces, [&](std::int64_t first, int size, std::int64_t byte) {
      encode(first, size, byte);
    });
  }
};

/// See ops/codes.h.
template <int kBits>
struct DecodeCodesKernel {
  static constexpr const char* kName = kBits == 4 ? "decode_int4" : "decode_int8";
  static constexpr int kMaxThreads = 256;
  Global<const std::int64_t> pieces;
  Global<const std::uint8_t> codes;
  Global<float> to;
  std::int64_t to_first, byte_first, source_bytes;
  std::int32_t num_sources, adds;

  ATOLL_DEVICE void decode(std::int64_t first, int size, std::int64_t byte) const {
    const CodeSlots<kBits> slots{size};
    float sum[kCodeSlots];
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slots.element(slot);
      sum[slot] = 0;
      if (adds != 0 && i < size) sum[slot] = to.load(first + i);
    }
    for (int source = 0; source < num_sources; ++source) {
      const std::int64_t from = byte + source * source_bytes;
      const float scale = load_float(codes, from);
      ATOLL_UNROLL
      for (int slot = 0; slot < kCodeSlots; ++slot) {
        const int i = slots.element(slot);
        const int both = i < size ? codes.load(from + 4 + slots.byte(slot)) : 0;
        const int code = kBits == 8 ? static_cast<std::int8_t>(both)
                                    : (slot < kCodeSlots / 2 ? both & 15 : both >> 4) - 8;
        const float value = value_of_code(kBits, code, scale);
        sum[slot] = source == 0 && adds == 0 ? value : sum[slot] + value;
      }
    }
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slots.element(slot);
      if (i < size) to.store(first + i, sum[slot]);
    }
  }
  ATOLL_DEVICE void operator()() const {
    for_code_blocks<kBits>(pieces, [&](std::int64_t first, int size, std::int64_t byte) {
      decode(first - to_first, size, byte - byte_first);
    });
  }
};

using CodesKernels = KernelList<EncodeCodesKernel<4>, EncodeCodesKernel<8>, DecodeCodesKernel<4>,
                                DecodeCodesKernel<8>>;

}  // namespace atl::ops::cuda
