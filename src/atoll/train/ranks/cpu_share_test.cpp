#include "atoll/train/ranks/cpu_share.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace atl::train {
namespace {

TEST(CpuShare, RanksDoNoMoreThanTheirCpusCan) {
  const CpuShare one = {.set = 1, .cpus = 2, .threads = 1, .flops = 50};
  EXPECT_EQ(peak_of(std::array{one}), 50);
  EXPECT_EQ(peak_of(std::array{one, one}), 100);
  EXPECT_EQ(peak_of(std::array{one, one, one, one}), 100) << "four ranks on two CPUs";
  const CpuShare many = {.set = 1, .cpus = 2, .threads = 8, .flops = 400};
  EXPECT_EQ(peak_of(std::array{many}), 100) << "eight threads on two CPUs";
  // Each bound to a CPU of its own, or on another host.
  std::vector<CpuShare> bound;
  for (std::uint64_t set = 1; set <= 4; ++set) {
    bound.push_back({.set = set, .cpus = 1, .threads = 1, .flops = 50});
  }
  EXPECT_EQ(peak_of(bound), 200);
}

}  // namespace
}  // namespace atl::train
