#pragma once

#include <cstdint>
#include <string_view>

namespace atl::simd {

/// What the environment variable ATOLL_SIMD may say: "avx2" keeps a process from AVX-512 and AMX,
/// as on a CPU that has neither; "baseline" leaves what Highway can count on without a look at the
/// CPU: no vectors at all with the Highway 1.0.3 of Debian 12, SSE2 on x86-64 with later ones. Runs
/// and tests can so be repeated as another CPU would carry them out. It changes bits.
inline constexpr const char* kLimitVariable = "ATOLL_SIMD";

/// Limits kernels of this process, and those of oneDNN, to such a set; nothing for an empty name.
/// Returns false for a name that is not known here. Call it first in main(): what a library has
/// looked up before stays as it is.
bool limit_instruction_sets(std::string_view name);

/// limit_instruction_sets() of ATOLL_SIMD. Where it is a name that is not known, prints a line
/// about it to stderr and returns false.
bool limit_instruction_sets_by_environment();

/// Chooses the best kernels that the limit allows. Each call of hwy::SupportedTargets() in Highway
/// 1.0.3 chooses among all that the CPU has, so whoever makes one, as tests do, calls this after
/// it.
void choose_kernels();

/// Whether AVX-512 and AMX may be used where the CPU has them.
bool allows_avx512();

}  // namespace atl::simd
