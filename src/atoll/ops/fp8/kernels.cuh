#pragma once

// Matrices of bf16 as numbers of 8 bits with scales: the codes of ops/ref on every GPU.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/fp8/numbers.h"

namespace atl::ops::cuda {

ATOLL_DEVICE std::uint32_t larger_bits(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}
/// The larger magnitude of two bf16 in a word, as the bits of an f32.
ATOLL_DEVICE std::uint32_t largest_of_pair(std::uint32_t word) {
  return larger_bits(word << 16 & 0x7fffffffU, word & 0x7fff0000U);
}
/// The largest of `lanes` neighbouring lanes, in each of them.
ATOLL_DEVICE std::uint32_t largest_of_lanes(std::uint32_t largest, int lanes = kWarp) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    largest = larger_bits(largest, shuffle_xor(largest, mask));
  }
  return largest;
}
/// The largest of a block's threads, in each of them; `room` has a word for each warp.
ATOLL_DEVICE std::uint32_t largest_of_block(std::uint32_t largest,
                                            const Shared<std::uint32_t>& room) {
  const std::uint32_t own = largest_of_lanes(largest);
  if (lane() == 0) room.store(warp(), own);
  sync_block();
  std::uint32_t all = 0;
  for (int w = 0; w < num_threads() / kWarp; ++w) all = larger_bits(all, room.load(w));
  return all;
}

/// The bits of the largest magnitude that each block finds.
struct LargestMagnitude {
  static constexpr const char* kName = "largest_magnitude";
  static constexpr int kMaxThreads = 256;
  static constexpr int kV = 8;
  static constexpr int kAtOnce = 4;  // packs of a thread
  static constexpr int kMostBlocks = 1024;
  Global<const Bf16> x;
  Global<std::uint32_t> largest;  // of each block

  static constexpr int shared_bytes() { return kMaxThreads / kWarp * 4; }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t step = std::int64_t{num_blocks_x()} * num_threads() * kV;
    std::uint32_t found = 0;
    for (std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * kV; i < x.size;
         i += step * kAtOnce) {
      Pack<Bf16, kV> packs[kAtOnce] = {};
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * step < x.size) packs[k] = x.load<kV>(i + k * step);
      }
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const auto held = Held<Bf16, kV>::of(packs[k]);
        ATOLL_UNROLL
        for (int w = 0; w < kV / 2; ++w) found = larger_bits(found, largest_of_pair(held.words[w]));
      }
    }
    const std::uint32_t all =
        largest_of_block(found, shared_memory<std::uint32_t>(0, kMaxThreads / kWarp));
    if (thread() == 0) largest.store(block_x(), all);
  }
};

/// Codes and scales of a tile of 128 x 128. A thread has eight columns of eight rows: four rows
/// that follow each other, and four that are 64 further on. Transposed codes go through shared
/// memory, in words of four rows.
template <Fp8Format kFormat, Fp8Tile kTile, bool kTransposed>
struct RoundToFp8 {
  static constexpr const char* kName = "round_to_fp8";
  static constexpr int kMaxThreads = 256;
  static constexpr int kSize = static_cast<int>(kFp8Block);
  static constexpr int kV = 8;
  static constexpr int kAcross = kSize / kV;           // threads of a row
  static constexpr int kDown = kMaxThreads / kAcross;  // groups of rows
  static constexpr int kHalves = 2;
  static constexpr int kRows = 4;
  static constexpr int kWords = kSize / kRows;  // of a column, in shared memory
  static constexpr int kCodeBytes = kTransposed ? kSize * kSize : 0;
  static constexpr bool kByColumns = kTile == Fp8Tile::kRow && kTransposed;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static_assert(kHalves * kDown * kRows == kSize);
  Global<const Bf16> x;        // (rows, cols)
  Global<std::uint8_t> codes;  // (rows, cols) or (cols, rows)
  Global<float> scales;
  Global<const std::uint32_t> largest;  // kTensor: of parts of x
  std::int64_t rows, cols;

  static constexpr int shared_bytes() {
    return kCodeBytes + (kByColumns ? kWarps * kSize : kWarps) * 4;
  }

  ATOLL_DEVICE static int column() { return thread() % kAcross * kV; }
  ATOLL_DEVICE static int row(int half, int r) {
    return (half * kDown + thread() / kAcross) * kRows + r;
  }
  ATOLL_DEVICE std::int64_t first_row() const { return std::int64_t{block_y()} * kSize; }
  ATOLL_DEVICE std::int64_t first_column() const { return std::int64_t{block_x()} * kSize; }

  /// What a thread has: elements that are not there are zeroes.
  struct Own {
    Held<Bf16, kV> held[kHalves][kRows];
  };
  ATOLL_DEVICE Own load() const {
    Own own = {};
    const std::int64_t col = first_column() + column(), end = rows, width = cols;
    ATOLL_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t at = first_row() + row(half, r);
        if (at < end && col < width) {
          own.held[half][r] = Held<Bf16, kV>::of(x.template load<kV>(at * cols + col));
        }
      }
    }
    return own;
  }
  ATOLL_DEVICE static std::uint32_t largest_of(const Held<Bf16, kV>& held) {
    std::uint32_t found = 0;
    ATOLL_UNROLL
    for (int w = 0; w < kV / 2; ++w) found = larger_bits(found, largest_of_pair(held.words[w]));
    return found;
  }
  ATOLL_DEVICE static std::uint32_t largest_of(const Own& own) {
    std::uint32_t found = 0;
    ATOLL_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) found = larger_bits(found, largest_of(own.held[half][r]));
    }
    return found;
  }
  ATOLL_DEVICE static Shared<std::uint32_t> room() {
    return shared_memory<std::uint32_t>(kCodeBytes, kByColumns ? kWarps * kSize : kWarps);
  }

  /// The scale of all elements of this tile.
  ATOLL_DEVICE Fp8Scale tile_scale(const Own& own) const {
    std::uint32_t found = 0;
    if constexpr (kTile == Fp8Tile::kTensor) {
      const auto count = static_cast<int>(largest.size);
      for (int i = thread(); i < count; i += num_threads()) {
        found = larger_bits(found, largest.load(i));
      }
    } else {
      found = largest_of(own);
    }
    const Fp8Scale scale = fp8_scale(kFormat, largest_of_block(found, room()));
    if constexpr (kTile == Fp8Tile::kTensor) {
      if (thread() == 0 && block_x() == 0 && block_y() == 0) scales.store(0, scale.value);
    } else {
      store_tile_scale(scale.value);
    }
    return scale;
  }
  ATOLL_DEVICE void store_tile_scale(float value) const {
    const std::int64_t outer = kTransposed ? block_x() : block_y();
    const std::int64_t inner = kTransposed ? block_y() : block_x();
    const std::int64_t k = kTransposed ? rows : cols;
    const std::int64_t blocks = num_fp8_blocks(k), width = fp8_scales_stride(k);
    if (thread() == 0) scales.store(outer * width + inner, value);
    // The last block of a row of scales fills it up.
    const std::int64_t at = inner + 1 + thread();
    if (inner == blocks - 1 && at < width) scales.store(outer * width + at, 0.0F);
  }
  /// Scales of the thread's rows, which 16 lanes share.
  ATOLL_DEVICE void row_scales(const Own& own, float (&inverse)[kHalves][kRows]) const {
    const std::int64_t end = rows;
    ATOLL_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Fp8Scale scale =
            fp8_scale(kFormat, largest_of_lanes(largest_of(own.held[half][r]), kAcross));
        inverse[half][r] = scale.inverse;
        const std::int64_t at = first_row() + row(half, r);
        if (column() == 0 && at < end) scales.store(block_x() * rows + at, scale.value);
      }
    }
  }
  /// Scales of the thread's columns, which all groups of rows share.
  ATOLL_DEVICE void column_scales(const Own& own, float (&inverse)[kV]) const {
    const auto found = room();
    ATOLL_UNROLL
    for (int i = 0; i < kV; ++i) {
      std::uint32_t most = 0;
      ATOLL_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        ATOLL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const std::uint32_t word = own.held[half][r].words[i / 2];
          most = larger_bits(most, (i % 2 == 0 ? word << 16 : word) & 0x7fff0000U);
        }
      }
      most = larger_bits(most, shuffle_xor(most, kAcross));
      if (lane() < kAcross) found.store(warp() * kSize + column() + i, most);
    }
    sync_block();
    const std::int64_t end = cols;
    ATOLL_UNROLL
    for (int i = 0; i < kV; ++i) {
      std::uint32_t most = 0;
      for (int w = 0; w < kWarps; ++w) {
        most = larger_bits(most, found.load(w * kSize + column() + i));
      }
      const Fp8Scale scale = fp8_scale(kFormat, most);
      inverse[i] = scale.inverse;
      const std::int64_t at = first_column() + column() + i;
      if (thread() < kAcross && at < end) scales.store(block_y() * cols + at, scale.value);
    }
  }

  ATOLL_DEVICE static std::uint32_t pair(float low, float high) {
    return kFormat == Fp8Format::kE4M3 ? pack_e4m3(low, high) : pack_e5m2(low, high);
  }
  template <typename Scaled>
  ATOLL_DEVICE void store_rows(const Own& own, const Scaled& scaled) const {
    const std::int64_t col = first_column() + column(), end = rows, width = cols;
    ATOLL_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        std::uint32_t words[2];
        ATOLL_UNROLL
        for (int w = 0; w < 2; ++w) {
          words[w] = pair(scaled(own, half, r, 4 * w), scaled(own, half, r, 4 * w + 1)) |
                     pair(scaled(own, half, r, 4 * w + 2), scaled(own, half, r, 4 * w + 3)) << 16;
        }
        Pack<std::uint8_t, kV> pack;
        __builtin_memcpy(&pack, words, sizeof pack);
        const std::int64_t at = first_row() + row(half, r);
        if (at < end && col < width) codes.template store<kV>(at * cols + col, pack);
      }
    }
  }
  template <typename Scaled>
  ATOLL_DEVICE void store_columns(const Own& own, const Scaled& scaled) const {
    // Word w of a column lies where w ^ 2 (column / 8) says, so that a warp's lanes, which have
    // columns 8 apart, use 32 banks.
    const auto box = shared_memory<std::uint32_t>(0, kSize * kWords);
    ATOLL_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      ATOLL_UNROLL
      for (int i = 0; i < kV; ++i) {
        const std::uint32_t word = pair(scaled(own, half, 0, i), scaled(own, half, 1, i)) |
                                   pair(scaled(own, half, 2, i), scaled(own, half, 3, i)) << 16;
        const int place = row(half, 0) / kRows ^ column() / kV * 2;
        box.store((column() + i) * kWords + place, word);
      }
    }
    sync_block();
    const std::int64_t end = cols, length = rows;
    constexpr int kPairs = kWords / 2;  // of words, of which a thread stores one at a time
    ATOLL_UNROLL
    for (int turn = 0; turn < kSize * kPairs / kMaxThreads; ++turn) {
      const int c = turn * (kMaxThreads / kPairs) + thread() / kPairs, n = thread() % kPairs;
      const auto words = box.template load<2>(c * kWords + 2 * (n ^ c / kV));
      Pack<std::uint8_t, kV> pack;
      __builtin_memcpy(&pack, &words, sizeof pack);
      const std::int64_t at = first_column() + c, from = first_row() + n * kV;
      if (at < end && from < length) codes.template store<kV>(at * rows + from, pack);
    }
  }
  template <typename Scaled>
  ATOLL_DEVICE void store(const Own& own, const Scaled& scaled) const {
    if constexpr (kTransposed)
      store_columns(own, scaled);
    else
      store_rows(own, scaled);
  }

  ATOLL_DEVICE void operator()() const {
    const Own own = load();
    if constexpr (kByColumns) {
      float inverse[kV];
      column_scales(own, inverse);
      store(own, [&](const Own& of, int half, int r, int i) {
        return of.held[half][r][i] * inverse[i];
      });
    } else if constexpr (kTile == Fp8Tile::kRow) {
      float inverse[kHalves][kRows];
      row_scales(own, inverse);
      store(own, [&](const Own& of, int half, int r, int i) {
        return of.held[half][r][i] * inverse[half][r];
      });
    } else {
      const float inverse = tile_scale(own).inverse;
      store(own,
            [&](const Own& of, int half, int r, int i) { return of.held[half][r][i] * inverse; });
    }
  }
};

using Fp8Kernels =
    KernelList<LargestMagnitude, RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kTensor, false>,
               RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kTensor, true>,
               RoundToFp8<Fp8Format::kE5M2, Fp8Tile::kTensor, false>,
               RoundToFp8<Fp8Format::kE5M2, Fp8Tile::kTensor, true>,
               RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kRow, false>,
               RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kRow, true>,
               RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kBlock, false>,
               RoundToFp8<Fp8Format::kE4M3, Fp8Tile::kBlock, true>>;

}  // namespace atl::ops::cuda
