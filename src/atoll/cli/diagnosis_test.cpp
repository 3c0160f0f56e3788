#include "atoll/base/processes/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "atoll/base/error.h"
#include "atoll/cli/diagnosis.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A /proc and /sys of our own making.
struct FakeRoot {
  fs::path path = fs::temp_directory_path() / fmt::format("atoll-machine-{}", ::getpid());

  FakeRoot() {
    write("proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Fast CPU\n\nprocessor\t: 1\nmodel name\t: Fast CPU\n");
    write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,8\n");
    write("proc/loadavg", "1.50 1.00 0.50 1/100 1\n");
    write("proc/meminfo",
          "MemTotal:       8388608 kB\nMemAvailable:    4194304 kB\nSwapTotal:       1024 kB\n"
          "SwapFree:         512 kB\nCommitLimit:    2048 kB\nCommitted_AS:   1024 kB\n");
    write("proc/sys/vm/overcommit_memory", "2\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  }
  ~FakeRoot() { fs::remove_all(path); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

TEST(Machine, FactsAreReadFromProcAndSys) {
  const FakeRoot root;
  const Machine machine = read_machine(root.path);
  EXPECT_EQ(machine.cpu_model, "Fast CPU");
  EXPECT_EQ(machine.cpus_present, 2);
  EXPECT_EQ(machine.cpus_allowed, 4);
  EXPECT_EQ(machine.cpu_quota, 0);
  EXPECT_EQ(machine.load, 1.5);
  EXPECT_EQ(machine.memory_total, std::uint64_t{8} << 30);
  EXPECT_EQ(machine.memory_available, std::uint64_t{4} << 30);
  EXPECT_EQ(machine.memory_limit, 0u);
  EXPECT_EQ(machine.swap_used, std::uint64_t{512} << 10);
  EXPECT_EQ(machine.overcommit_mode, 2);
  EXPECT_EQ(machine.huge_pages, "never");
  EXPECT_FALSE(machine.nvidia_gpu);
}

TEST(Machine, TheLowestCgroupLimitOnTheWayUpHolds) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/slice/job\n");
  root.write("sys/fs/cgroup/slice/job/cpu.max", "300000 100000\n");
  root.write("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/slice/job/memory.max", "1073741824\n");
  root.write("sys/fs/cgroup/slice/memory.max", "2147483648\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  const Machine machine = read_machine(root.path);
  EXPECT_EQ(machine.cpu_quota, 1.5);
  EXPECT_EQ(machine.memory_limit, std::uint64_t{1} << 30);
}

TEST(Machine, CgroupVersionOneIsUnderstood) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n3:memory:/job\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const Machine machine = read_machine(root.path);
  EXPECT_EQ(machine.cpu_quota, 0.5);
  EXPECT_EQ(machine.memory_limit, 0u);
}

TEST(Machine, AGraphicsCardIsSeenWithoutItsDriver) {
  const FakeRoot root;
  root.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  root.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  EXPECT_TRUE(read_machine(root.path).nvidia_gpu);
}

TEST(Machine, AnEmptyRootIsNoError) {
  EXPECT_EQ(read_machine("/no/such/root").cpus_present, 0);
}

Machine healthy() {
  return {.cpus_present = 4,
          .cpus_allowed = 4,
          .memory_total = std::uint64_t{8} << 30,
          .memory_available = std::uint64_t{6} << 30,
          .huge_pages = "madvise"};
}
const Disk kDisk = {.available = std::uint64_t{100} << 30, .writable = true};
const Build kBuild = {.type = "RelWithDebInfo"};
const GpuReport kNoCuda = {.problem = "not built"};

std::string first_finding(const Machine& machine, const Disk& disk = kDisk,
                          const Build& build = kBuild, const std::string& features = "avx2") {
  const std::vector<Finding> findings = diagnose(machine, disk, build, kNoCuda, features);
  if (findings.empty()) return "nothing";
  EXPECT_FALSE(findings[0].fix.empty());
  return findings[0].what;
}

TEST(Diagnosis, AHealthyMachineHasNoFindings) {
  EXPECT_THAT(diagnose(healthy(), kDisk, kBuild, kNoCuda, "avx2"), IsEmpty());
}

TEST(Diagnosis, EachThingWrongIsNamed) {
  EXPECT_THAT(first_finding(healthy(), kDisk, {.type = "Debug"}), HasSubstr("'Debug'"));
  EXPECT_THAT(first_finding(healthy(), kDisk, {.type = "Release", .sanitizers = "thread"}),
              HasSubstr("sanitizers (thread)"));
  EXPECT_THAT(first_finding(healthy(), {.available = 1 << 20, .writable = true}),
              HasSubstr("only 1.0 MiB of disk"));
  EXPECT_THAT(first_finding(healthy(), {.available = kDisk.available}), HasSubstr("not writable"));
  EXPECT_THAT(first_finding(healthy(), kDisk, kBuild, "sse"), HasSubstr("no AVX2"));

  Machine machine = healthy();
  machine.memory_available = 1 << 20;
  EXPECT_THAT(first_finding(machine), HasSubstr("of memory are available"));
  machine = healthy();
  machine.cpu_quota = 1.5;
  EXPECT_THAT(first_finding(machine), HasSubstr("granted the time of 1.5"));
  machine = healthy();
  machine.load = 9;
  EXPECT_THAT(first_finding(machine), HasSubstr("busy"));
  machine = healthy();
  machine.nvidia_gpu = true;
  EXPECT_EQ(first_finding(machine), "nothing") << "training would not use it either";
  machine = healthy();
  machine.huge_pages = "never";
  EXPECT_THAT(first_finding(machine), HasSubstr("huge pages are off"));
  machine = healthy();
  machine.overcommit_mode = 2;
  EXPECT_THAT(first_finding(machine), HasSubstr("vm.overcommit_memory"));
  machine = healthy();
  machine.swap_used = std::uint64_t{2} << 30;
  EXPECT_EQ(first_finding(machine), "nothing");  // swapped out long ago; there is room
  machine.memory_available = machine.memory_total / 20;
  EXPECT_THAT(diagnose(machine, kDisk, kBuild, kNoCuda, "avx2").back().what,
              HasSubstr("overcommitted"));
}

}  // namespace
}  // namespace atl::cli
