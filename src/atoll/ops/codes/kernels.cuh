#pragma once

// Codes of 4 and 8 bits: a block of threads for each piece, a warp for each block of 256 elements
// that has a scale. Operations are those of ops/ref in the same order. Pieces end anywhere, so that
// codes may have no alignment: a warp then moves 32 bytes that lie together, one each, and where a
// whole block of codes and its elements lie aligned a lane has four neighbours.

#include "atoll/ops/codes/code_numbers.h"
#include "atoll/ops/codes/layout.h"
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

/// Whether memory begins at a multiple of so many bytes, and element i of it lies at one.
template <int kBytes, typename T>
ATOLL_DEVICE bool lies_at_multiple(const Global<T>& of, std::int64_t i) {
  constexpr int kElements = kBytes / static_cast<int>(sizeof(T));
  return i % kElements == 0 && reinterpret_cast<std::uintptr_t>(of.data) % kBytes == 0;
}

/// A lane's elements and codes in a block of `size` elements: eight, in slots. Of 4 bits, slots s
/// and s + 4 share a byte. kWide: all elements are there, and lie at multiples of 16 bytes, codes
/// at multiples of 4.
template <int kBits, bool kWide>
struct CodeSlots {
  static constexpr int kBytes = kBits == 8 ? kCodeSlots : kCodeSlots / 2;  // of a lane
  static constexpr int kWords = kWide ? kBytes / 4 : kBytes;  // that hold them, or one each
  int size;

  /// Bytes of codes.
  ATOLL_DEVICE int bytes() const { return kBits == 8 ? size : (size + 1) / 2; }
  ATOLL_DEVICE static int byte(int slot) { return slot % kBytes * kWarp + lane(); }
  /// The element of a slot where not all are wide; `size` and more: none.
  ATOLL_DEVICE int element(int slot) const {
    const int at = byte(slot), end = bytes();
    if (kBits == 8 || slot < kBytes) return at < end ? at : size;
    return end + at;
  }
  ATOLL_DEVICE void load(float (&to)[kCodeSlots], const Global<const float>& from,
                         std::int64_t first) const {
    if constexpr (kWide) {
      ATOLL_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto pack = from.template load<4>(first + half * (kWarp * 4) + lane() * 4);
        ATOLL_UNROLL
        for (int e = 0; e < 4; ++e) to[half * 4 + e] = pack[e];
      }
    } else {
      ATOLL_UNROLL
      for (int slot = 0; slot < kCodeSlots; ++slot) {
        const int i = element(slot);
        to[slot] = i < size ? from.load(first + i) : 0.0F;
      }
    }
  }
  ATOLL_DEVICE void store(const Global<float>& to, std::int64_t first,
                          const float (&from)[kCodeSlots]) const {
    if constexpr (kWide) {
      ATOLL_UNROLL
      for (int half = 0; half < 2; ++half) {
        Pack<float, 4> pack;
        ATOLL_UNROLL
        for (int e = 0; e < 4; ++e) pack[e] = from[half * 4 + e];
        // An index that the compiler sees to be a multiple of 4: else it stores words.
        to.template store<4>((first / 4 + half * kWarp + lane()) * 4, pack);
      }
    } else {
      ATOLL_UNROLL
      for (int slot = 0; slot < kCodeSlots; ++slot) {
        const int i = element(slot);
        if (i < size) to.store(first + i, from[slot]);
      }
    }
  }
  ATOLL_DEVICE void load_codes(std::uint32_t (&words)[kWords],
                               const Global<const std::uint8_t>& from, std::int64_t byte_at) const {
    ATOLL_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kWide) {
        words[i] = std::bit_cast<std::uint32_t>(
            from.template load<4>(byte_at + i * (kWarp * 4) + lane() * 4));
      } else {
        const int at = byte(i), end = bytes();
        words[i] = at < end ? from.load(byte_at + at) : 0;
      }
    }
  }
  ATOLL_DEVICE static int code_of(const std::uint32_t (&words)[kWords], int slot) {
    const int at = slot % kBytes;
    const std::uint32_t word = kWide ? words[at / 4] >> (8 * (at % 4)) : words[at];
    if constexpr (kBits == 8) return static_cast<std::int8_t>(word);
    return static_cast<int>(slot < kBytes ? word & 15 : word >> 4 & 15) - 8;
  }
  ATOLL_DEVICE void store_codes(const Global<std::uint8_t>& to, std::int64_t byte_at,
                                const int (&code)[kCodeSlots], bool is_encodable) const {
    std::uint32_t own[kBytes];
    ATOLL_UNROLL
    for (int i = 0; i < kBytes; ++i) {
      const int both =
          kBits == 8 ? code[i] & 255 : (code[i] + 8) | ((code[(i + kBytes) % kCodeSlots] + 8) << 4);
      own[i] = is_encodable ? static_cast<std::uint32_t>(both) : 0;
    }
    ATOLL_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kWide) {
        const std::uint32_t word =
            own[4 * i] | own[4 * i + 1] << 8 | own[4 * i + 2] << 16 | own[4 * i + 3] << 24;
        to.template store<4>(byte_at + i * (kWarp * 4) + lane() * 4,
                             std::bit_cast<Pack<std::uint8_t, 4>>(word));
      } else {
        const int at = byte(i), end = bytes();
        if (at < end) to.store(byte_at + at, static_cast<std::uint8_t>(own[i]));
      }
    }
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

/// See ops/codes/codes.h.
template <int kBits>
struct EncodeCodesKernel {
  static constexpr const char* kName = kBits == 4 ? "encode_int4" : "encode_int8";
  static constexpr int kMaxThreads = 256;
  Global<const std::int64_t> pieces;
  Global<const float> x;
  Global<const float> minus;  // or none
  Global<float> residual;     // or none
  Global<std::uint8_t> codes;
  std::int64_t x_first;

  template <bool kWide>
  ATOLL_DEVICE void load_wanted(const CodeSlots<kBits, kWide>& slots, float (&wanted)[kCodeSlots],
                                std::int64_t first) const {
    slots.load(wanted, x, first - x_first);
    const bool has_residual = residual.size > 0;
    const Global<const float> other =
        has_residual ? Global<const float>{residual.data, residual.size} : minus;
    if (other.size == 0) return;
    float others[kCodeSlots];
    slots.load(others, other, first);
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      wanted[slot] += has_residual ? others[slot] : -others[slot];
    }
  }
  ATOLL_DEVICE static std::int32_t largest_of(const float (&values)[kCodeSlots]) {
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const std::int32_t bits = magnitude_bits(values[slot]);
      largest = bits > largest ? bits : largest;
    }
    return largest_of_warp(largest);
  }
  template <bool kWide>
  ATOLL_DEVICE void encode(std::int64_t first, int size, std::int64_t byte) const {
    const CodeSlots<kBits, kWide> slots{size};
    float wanted[kCodeSlots];
    load_wanted(slots, wanted, first);
    const CodeScale scale = code_scale(kBits, largest_of(wanted));
    store_float(codes, byte, scale.value);
    int code[kCodeSlots];
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      code[slot] = scale.is_encodable ? static_cast<int>(rintf(wanted[slot] * scale.inverse)) : 0;
    }
    slots.store_codes(codes, byte + 4, code, scale.is_encodable);
    if (!scale.is_encodable || residual.size == 0) return;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      wanted[slot] -= static_cast<float>(code[slot]) * scale.value;
    }
    const float offset = grid_offset(largest_of(wanted));
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      wanted[slot] = (wanted[slot] + offset) - offset;
    }
    slots.store(residual, first, wanted);
  }
  ATOLL_DEVICE bool is_wide(std::int64_t first, int size, std::int64_t byte) const {
    return size == kCodeBlock && lies_at_multiple<16>(x, first - x_first) &&
           (residual.size == 0 || lies_at_multiple<16>(residual, first)) &&
           (minus.size == 0 || lies_at_multiple<16>(minus, first)) &&
           lies_at_multiple<4>(codes, byte);
  }
  ATOLL_DEVICE void operator()() const {
    for_code_blocks<kBits>(pieces, [&](std::int64_t first, int size, std::int64_t byte) {
      is_wide(first, size, byte) ? encode<true>(first, size, byte)
                                 : encode<false>(first, size, byte);
    });
  }
};

/// See ops/codes/codes.h.
template <int kBits>
struct DecodeCodesKernel {
  static constexpr const char* kName = kBits == 4 ? "decode_int4" : "decode_int8";
  static constexpr int kMaxThreads = 256;
  Global<const std::int64_t> pieces;
  Global<const std::uint8_t> codes;
  Global<float> to;
  std::int64_t to_first, byte_first, source_bytes;
  std::int32_t num_sources, adds;

  template <bool kWide>
  ATOLL_DEVICE float load_scale(std::int64_t at) const {
    if constexpr (kWide) return std::bit_cast<float>(codes.load<4>(at));
    return load_float(codes, at);
  }
  template <bool kWide>
  ATOLL_DEVICE void decode(std::int64_t first, int size, std::int64_t byte) const {
    using Slots = CodeSlots<kBits, kWide>;
    constexpr int kAtOnce =
        kWide || kBits == 4 ? 4 : 2;  // sources whose codes are on their way together
    const Slots slots{size};
    float sum[kCodeSlots];
    for (float& one : sum) one = -0.0F;  // which changes nothing that it is added to
    if (adds != 0) slots.load(sum, {to.data, to.size}, first);
    ATOLL_NO_UNROLL
    for (int source = 0; source < num_sources; source += kAtOnce) {
      std::uint32_t words[kAtOnce][Slots::kWords];
      float scales[kAtOnce];
      for (float& scale : scales)
        scale = std::bit_cast<float>(kCodeNan);  // of a source that is none
      ATOLL_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        if (source + s >= num_sources) break;
        const std::int64_t from = byte + (source + s) * source_bytes;
        scales[s] = load_scale<kWide>(from);
        slots.load_codes(words[s], codes, from + 4);
      }
      ATOLL_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        if (source + s >= num_sources) break;
        ATOLL_UNROLL
        for (int slot = 0; slot < kCodeSlots; ++slot) {
          const float value = value_of_code(kBits, Slots::code_of(words[s], slot), scales[s]);
          sum[slot] += value;
        }
      }
    }
    slots.store(to, first, sum);
  }
  ATOLL_DEVICE bool is_wide(std::int64_t first, int size, std::int64_t byte) const {
    return size == kCodeBlock && lies_at_multiple<16>(to, first) &&
           lies_at_multiple<4>(codes, byte) && (num_sources == 1 || source_bytes % 4 == 0);
  }
  ATOLL_DEVICE void operator()() const {
    for_code_blocks<kBits>(pieces, [&](std::int64_t first, int size, std::int64_t byte) {
      const std::int64_t to_at = first - to_first, from = byte - byte_first;
      is_wide(to_at, size, from) ? decode<true>(to_at, size, from)
                                 : decode<false>(to_at, size, from);
    });
  }
};

using CodesKernels = KernelList<EncodeCodesKernel<4>, EncodeCodesKernel<8>, DecodeCodesKernel<4>,
                                DecodeCodesKernel<8>>;

}  // namespace atl::ops::cuda
