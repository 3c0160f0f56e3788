#include "atoll/base/processes/resident.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace atl {
namespace {

TEST(Resident, CountsWhatIsTouchedAndRemembersThePeak) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = resident_bytes();
  ASSERT_GT(before, std::size_t{1} << 20);
  void* block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  EXPECT_LT(resident_bytes(), before + kBytes / 2);
  std::memset(block, 1, kBytes);
  EXPECT_GE(resident_bytes(), before + kBytes / 2);
  ::munmap(block, kBytes);
  EXPECT_LT(resident_bytes(), before + kBytes / 2);
  EXPECT_GE(peak_resident_bytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace atl
