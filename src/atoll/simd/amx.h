#pragma once

// Whether this process may use the tile registers of Intel's AMX, whose set-up is simd/amx/tiles.h,
// and the integer products of AVX-512.

namespace atl::simd {

/// Whether the CPU has AMX with bf16 and int8 and AVX-512 with bf16, and the system lets this
/// process use tiles: the first call asks for that (Linux: arch_prctl), for all threads.
bool has_amx();

/// Whether the CPU has AVX-512 with VNNI: sums of four products of 8 bits in each lane.
bool has_vnni();

}  // namespace atl::simd
