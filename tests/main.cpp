// main() of every test program. With ATOLL_SIMD tests run as on a CPU with fewer instructions.

#include <gtest/gtest.h>

#include "atoll/simd/instruction_sets.h"

int main(int argc, char** argv) {
  if (!atl::simd::limit_instruction_sets_by_environment()) return 2;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
