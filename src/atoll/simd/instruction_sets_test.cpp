#include "atoll/simd/instruction_sets.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "atoll/simd/amx.h"
#include "atoll/simd/highway_targets.h"
#include "hwy/targets.h"

namespace atl::simd {
namespace {

// A limit stays until the process ends, so each is tried in one of its own.
[[noreturn]] void end_with(bool holds) {
  std::_Exit(holds ? 0 : 1);
}

bool has_better_than(std::int64_t target) {
  return (hwy::SupportedTargets() & (target - 1)) != 0;
}

// Whether the next kernel is one for the best set that is allowed.
bool kernels_are_for(std::int64_t target) {
  choose_kernels();
  const std::size_t chosen = hwy::GetChosenTarget().GetIndex();
  hwy::GetChosenTarget().Update(target);
  return chosen == hwy::GetChosenTarget().GetIndex();
}

TEST(InstructionSets, Avx2KeepsFromAvx512AndAmx) {
  if (HWY_ARCH_X86 == 0) GTEST_SKIP() << "this CPU is not an x86-64 one";
  EXPECT_EXIT(end_with(limit_instruction_sets("avx2") && !has_better_than(HWY_AVX2) && !has_amx() &&
                       !has_vnni()),
              testing::ExitedWithCode(0), "");
}

TEST(InstructionSets, BaselineLeavesWhatEachCpuHas) {
  EXPECT_EXIT(
      end_with(limit_instruction_sets("baseline") && hwy::SupportedTargets() == HWY_STATIC_TARGET &&
               kernels_are_for(HWY_STATIC_TARGET) && !has_vnni()),
      testing::ExitedWithCode(0), "");
}

TEST(InstructionSets, AreAllUsedWithoutALimit) {
  EXPECT_EXIT(
      {
        const std::int64_t before = hwy::SupportedTargets();
        end_with(limit_instruction_sets("") && hwy::SupportedTargets() == before);
      },
      testing::ExitedWithCode(0), "");
}

TEST(InstructionSets, RefuseANameThatIsNotKnown) {
  EXPECT_FALSE(limit_instruction_sets("avx9"));
  EXPECT_EXIT(
      {
        ::setenv(kLimitVariable, "avx9", 1);
        end_with(!limit_instruction_sets_by_environment());
      },
      testing::ExitedWithCode(0), "ATOLL_SIMD=avx9");
}

}  // namespace
}  // namespace atl::simd
