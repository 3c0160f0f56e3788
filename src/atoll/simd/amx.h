#pragma once

// Whether this process may use the tile registers of Intel's AMX; their set-up is simd/amx/tiles.h.

namespace atl::simd {

/// Whether the CPU has AMX with bf16 and int8 and AVX-512 with bf16, and the system lets this
/// process use tiles: the first call asks for that (Linux: arch_prctl), for all threads.
bool has_amx();

}  // namespace atl::simd
