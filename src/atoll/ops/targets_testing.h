#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/highway.h"

namespace atl::test {

/// A suite that runs once for each instruction set that this machine has, by Highway's name:
/// INSTANTIATE_TEST_SUITE_P(All, TheSuite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets())).
class EachTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

 private:
  static void use(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace atl::test
