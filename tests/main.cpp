// main() of every test program. With ATOLL_SIMD tests run as on a CPU with fewer instructions.

#include <gtest/gtest.h>

#include "atoll/simd/instruction_sets.h"

namespace {

// Parameters of tests, and tests themselves, ask Highway what this CPU has.
class WithinTheLimit : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { atl::simd::choose_kernels(); }
};

}  // namespace

int main(int argc, char** argv) {
  if (!atl::simd::limit_instruction_sets_by_environment()) return 2;
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new WithinTheLimit);
  return RUN_ALL_TESTS();
}
