#include "atoll/simd/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "atoll/simd/instruction_sets.h"

namespace atl::simd {

namespace {

// CPUID's leaf 7: EDX of sub-leaf 0 (AMX-BF16, AMX-TILE, AMX-INT8) and EAX of sub-leaf 1.
constexpr unsigned kAmxBits = (1U << 22) | (1U << 24) | (1U << 25);
constexpr unsigned kAvx512Bf16Bit = 1U << 5;
// arch_prctl's request for the state of tiles (Linux: Documentation/arch/x86/xstate.rst).
constexpr long kRequestState = 0x1023;
constexpr long kTileData = 18;

bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBits) != kAmxBits) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512Bf16Bit) == 0) return false;
  return __builtin_cpu_supports("avx512dq") != 0 && has_vnni();
}

}  // namespace

bool has_amx() {
  static const bool has =
      cpu_has_tiles() && ::syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  return has;
}

bool has_vnni() {
  return allows_avx512() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512vnni") != 0;
}

}  // namespace atl::simd
