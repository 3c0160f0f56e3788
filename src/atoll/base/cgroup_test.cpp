#include "atoll/base/cgroup.h"

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

}  // namespace
}  // namespace atl
