#pragma once

// The set-up of AMX's tile registers, for x86-64 alone. What uses them is compiled with a target
// attribute of its own, so that the program runs on any CPU; ask simd::has_amx() first.
// Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 20.

#include <immintrin.h>

/// For a function that uses tiles, and each function inlined into it (a lambda has none).
#define ATOLL_AMX                                                                 \
  __attribute__((                                                                 \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,amx-tile," \
             "amx-bf16,amx-int8")))

/// The same for one that uses AVX-512 with VNNI; ask simd::has_vnni() first.
#define ATOLL_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

namespace atl::simd {

/// Rows, and bytes of a row, of a whole tile.
constexpr int kAmxTileRows = 16;
constexpr int kAmxRowBytes = 64;

/// What ldtilecfg reads.
struct alignas(64) AmxConfiguration {
  unsigned char palette = 1;
  unsigned char start_row = 0;
  unsigned char reserved[14] = {};
  unsigned short row_bytes[16] = {};  // NOLINT(google-runtime-int): 16 bits
  unsigned char rows[16] = {};
};
constexpr AmxConfiguration whole_amx_tiles() {
  AmxConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = kAmxRowBytes;
    configuration.rows[tile] = kAmxTileRows;
  }
  return configuration;
}
/// A constant, because GCC 12 takes _tile_loadconfig to read 8 bytes and drops stores to the rest.
inline constexpr AmxConfiguration kWholeAmxTiles = whole_amx_tiles();

/// While it lives, the calling thread has eight whole tiles; their contents are undefined at first.
/// Needs has_amx(). Setting up costs some tens of cycles: make one for a task, not for a thread,
/// whose every switch would then save 8 KiB more.
class AmxTiles {
 public:
  ATOLL_AMX AmxTiles() { _tile_loadconfig(&kWholeAmxTiles); }
  ATOLL_AMX ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace atl::simd
