#pragma once

// For x86-64 alone.

#include <immintrin.h>

namespace atl::ops::cpu {

/// A square of 16 x 16 elements of 32 bits, turned: row i of the result is column i.
__attribute__((always_inline, target("avx512f"))) inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);      // columns 0, 4, 8, 12 of rows i to i + 3
    t[i + 1] = _mm512_unpackhi_epi64(a, c);  // 1, 5, ...
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);  // columns i, i + 8
    const __m512i b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);  // i + 4, i + 12
    const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

}  // namespace atl::ops::cpu
