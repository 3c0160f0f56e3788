#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "atoll/simd/highway_targets.h"
#include "atoll/simd/instruction_sets.h"
#include "hwy/targets.h"

namespace atl::test {

/// Makes the kernels run as on a machine with one instruction set only; 0: this machine's best.
inline void use_target(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  simd::choose_kernels();
}

/// A suite that runs once for each instruction set that this machine has, by Highway's name:
/// INSTANTIATE_TEST_SUITE_P(All, TheSuite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
///                          test::target_name).
class EachTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(0); }
};

/// "AVX2", ...: what INSTANTIATE_TEST_SUITE_P appends to a name.
inline std::string target_name(const testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

}  // namespace atl::test
