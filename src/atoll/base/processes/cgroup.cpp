#include "atoll/base/processes/cgroup.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace atl {

namespace fs = std::filesystem;

namespace {

// The number a file starts with; 0 when there is none ("max", or no such file).
double number_in(std::istream& file) {
  double value = 0;
  return file >> value ? value : 0;
}

void lower(double& limit, double quota, double period) {
  if (quota <= 0 || period <= 0) return;  // version 1 says "no limit" with -1
  if (limit == 0 || quota / period < limit) limit = quota / period;
}

}  // namespace

std::vector<fs::path> cgroup_directories(const fs::path& root, const std::string& controller) {
  fs::path own;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b"
    const std::size_t first = std::min(line.find(':'), line.size());
    const std::size_t second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names == ",," ? controller.empty() : names.find("," + controller + ",") != names.npos) {
      own = line.substr(second + 1);
    }
  }
  std::vector<fs::path> directories;
  const fs::path top = root / "sys/fs/cgroup" / controller;
  for (fs::path path = own.relative_path(); !path.empty(); path = path.parent_path()) {
    directories.push_back(top / path);
  }
  directories.push_back(top);
  return directories;
}

double cgroup_cpu_quota(const fs::path& root) {
  double limit = 0;
  for (const fs::path& directory : cgroup_directories(root, "")) {
    std::ifstream file(directory / "cpu.max");  // "200000 100000" or "max 100000"
    const double quota = number_in(file);
    lower(limit, quota, number_in(file));
  }
  for (const fs::path& directory : cgroup_directories(root, "cpu")) {
    std::ifstream quota(directory / "cpu.cfs_quota_us");
    std::ifstream period(directory / "cpu.cfs_period_us");
    lower(limit, number_in(quota), number_in(period));
  }
  return limit;
}

std::uint64_t cgroup_memory_limit(const fs::path& root) {
  constexpr double kNone = 0x1p60;  // version 1 says "no limit" with nearly 2^63
  double limit = 0;
  const auto read = [&](const std::string& controller, const char* name) {
    for (const fs::path& directory : cgroup_directories(root, controller)) {
      std::ifstream file(directory / name);
      const double bytes = number_in(file);
      if (bytes < kNone) lower(limit, bytes, 1);
    }
  };
  read("", "memory.max");
  read("memory", "memory.limit_in_bytes");
  return static_cast<std::uint64_t>(limit);
}

std::uint64_t usable_memory() {
  const auto installed = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t limit = cgroup_memory_limit("/");
  return limit > 0 ? std::min(installed, limit) : installed;
}

std::uint64_t swap_memory() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalswap} * info.mem_unit : 0;
}

}  // namespace atl
