#pragma once

// Which arithmetic multiplies two bf16 matrices. Sums run in f32 in each, in another order.

#include <string_view>

namespace atl::ops {

/// How products of bf16 operands are computed.
enum class Bf16Arithmetic {
  kF32,      ///< both are widened to f32, piece by piece
  kLibrary,  ///< oneDNN on bf16 itself, with AVX-512 BF16 or AMX
  kAmx,      ///< our own tiles on AMX
};

/// What this process does: what set_bf16_arithmetic said, else what is faster. That is measured
/// once, at the first call, in some milliseconds; like the choice of an instruction set it belongs
/// to the CPU, and so to the process. To be taken, one must be a fifth faster than those above it
/// in the list, so that noise does not decide.
Bf16Arithmetic bf16_arithmetic();

/// Takes this one from now on, whatever is faster. Throws Error(kUser) for one that this CPU does
/// not have.
void set_bf16_arithmetic(Bf16Arithmetic arithmetic);
/// Whether set_bf16_arithmetic takes it here.
bool has_bf16_arithmetic(Bf16Arithmetic arithmetic);
/// Forgets what was set: what is faster counts again.
void reset_bf16_arithmetic();

/// CPU seconds that widening takes to this one's, on one block of a product on one thread; 0 where
/// this CPU does not have it, or only without instructions for bf16.
double bf16_speedup(Bf16Arithmetic arithmetic);

/// "f32", "library" or "amx".
std::string_view bf16_arithmetic_name(Bf16Arithmetic arithmetic);
/// The one of this name. Throws Error(kInternal) for another.
Bf16Arithmetic bf16_arithmetic_named(std::string_view name);

}  // namespace atl::ops
