#pragma once

// Which instruction sets the Highway kernels are compiled for. Include this before any Highway
// header, or the choice comes too late.
//
// Baseline, AVX2 and AVX-512 (AVX3): the sets in between serve machines older than 2013, the ones
// above add instructions that float kernels do not use, and each costs its share of every build.

#ifdef HWY_DISABLED_TARGETS
#error "include atoll/simd/highway_targets.h before any Highway header"
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
