#include "atoll/base/processes/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace atl {
namespace {

namespace fs = std::filesystem;

// A directory that stands for "/".
class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest()
      : root_(fs::temp_directory_path() / ("atoll-cgroup-test-" + std::to_string(::getpid()))) {}
  ~CgroupTest() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
};

TEST_F(CgroupTest, WithoutALimitTheQuotaIsZero) {
  EXPECT_EQ(cgroup_cpu_quota(root_), 0);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0);
}

TEST_F(CgroupTest, AContainerSeesItsLimitAtTheTop) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 2.5);
}

TEST_F(CgroupTest, TheLowestLimitOnTheWayUpHolds) {
  write("proc/self/cgroup", "0::/slice/job\n");
  write("sys/fs/cgroup/slice/job/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
}

TEST_F(CgroupTest, VersionOneIsUnderstood) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/job\n3:memory:/job\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.5);
}

TEST_F(CgroupTest, OfMemoryTheLowestLimitOnTheWayUpHolds) {
  EXPECT_EQ(cgroup_memory_limit(root_), 0U);
  write("proc/self/cgroup", "0::/slice/job\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 0U);
  write("sys/fs/cgroup/slice/job/memory.max", "2147483648\n");
  EXPECT_EQ(cgroup_memory_limit(root_), std::uint64_t{2} << 30);
  write("sys/fs/cgroup/slice/memory.max", "1073741824\n");
  EXPECT_EQ(cgroup_memory_limit(root_), std::uint64_t{1} << 30);
}

TEST_F(CgroupTest, OfMemoryVersionOneIsUnderstood) {
  write("proc/self/cgroup", "3:memory:/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 0U);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000000\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 300'000'000U);
}

TEST_F(CgroupTest, SomeMemoryMayBeUsed) {
  EXPECT_GT(usable_memory(), 0U);
}

}  // namespace
}  // namespace atl
