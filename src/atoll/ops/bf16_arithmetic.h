#pragma once

// Which arithmetic multiplies two bf16 matrices. Sums run in f32 in either, in another order.

#include <string_view>

namespace atl::ops {

/// How products of bf16 operands are computed.
enum class Bf16Arithmetic {
  kF32,      ///< both are widened to f32, piece by piece
  kLibrary,  ///< oneDNN on bf16 itself, with AVX-512 BF16 or AMX
};

/// What this process does: what set_bf16_arithmetic said, else what is faster. That is measured
/// once, at the first call, in some milliseconds; like the choice of an instruction set it belongs
/// to the CPU, and so to the process. The library must be a fifth faster to be taken, so that noise
/// does not decide.
Bf16Arithmetic bf16_arithmetic();

/// Takes this one from now on, whatever is faster. Throws Error(kUser) for kLibrary on a CPU whose
/// library has no bf16.
void set_bf16_arithmetic(Bf16Arithmetic arithmetic);
/// Whether set_bf16_arithmetic takes kLibrary here.
bool has_library_bf16();
/// Forgets what was set: what is faster counts again.
void reset_bf16_arithmetic();

/// CPU seconds that widening takes to one of the library's, on one block of a product on one
/// thread; 0 on CPUs without bf16 instructions, where nothing is measured.
double bf16_library_speedup();

/// "f32" or "library".
std::string_view bf16_arithmetic_name(Bf16Arithmetic arithmetic);

}  // namespace atl::ops
