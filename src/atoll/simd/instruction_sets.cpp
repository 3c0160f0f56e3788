#include "atoll/simd/instruction_sets.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "atoll/simd/highway_targets.h"
#include "hwy/targets.h"

namespace atl::simd {

namespace {

std::atomic<bool> avx512_is_allowed = true;

void disable(std::int64_t targets, const char* most_of_onednn) {
  hwy::DisableTargets(targets);
  choose_kernels();
  // oneDNN reads it at its first call. A stricter limit of the user's own stays.
  ::setenv("ONEDNN_MAX_CPU_ISA", most_of_onednn, /*overwrite=*/0);
  avx512_is_allowed = false;
}

}  // namespace

bool limit_instruction_sets(std::string_view name) {
  if (name.empty()) return true;
  if (name == "baseline") {
    disable(~static_cast<std::int64_t>(HWY_STATIC_TARGET), "SSE41");
    return true;
  }
  if (HWY_ARCH_X86 != 0 && name == "avx2") {
    disable(HWY_AVX2 - 1, "AVX2");  // Highway gives better sets lower bits
    return true;
  }
  return false;
}

bool limit_instruction_sets_by_environment() {
  const char* name = std::getenv(kLimitVariable);
  if (name == nullptr || limit_instruction_sets(name)) return true;
  std::fprintf(stderr,
               "error: the environment has %s=%s; it takes avx2 (on x86-64) and baseline, and all "
               "instruction sets of the CPU are used where it is not set\n",
               kLimitVariable, name);
  return false;
}

void choose_kernels() {
  // Not in one expression: SupportedTargets() itself chooses among all that the CPU has.
  const std::int64_t allowed = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(allowed);
}

bool allows_avx512() {
  return avx512_is_allowed;
}

}  // namespace atl::simd
