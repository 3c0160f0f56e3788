#include "atoll/base/processes/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "atoll/base/processes/cgroup.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The number at the start of a text; 0 when there is none ("max").
std::uint64_t leading_number(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::uint64_t value = 0;
  std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return value;
}

// How many CPUs a list such as "0-3,8" names.
int count_list(const std::string& list) {
  std::istringstream ranges(list);
  int count = 0;
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::uint64_t first = leading_number(range);
    const std::size_t dash = range.find('-');
    const std::uint64_t last =
        dash == range.npos ? first : leading_number(std::string_view(range).substr(dash + 1));
    if (last >= first) count += static_cast<int>(last - first + 1);
  }
  return count;
}

void read_cpus(const fs::path& root, Machine& machine) {
  std::ifstream info(root / "proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("processor")) ++machine.cpus_present;
    if (const std::size_t colon = line.find(": ");
        line.starts_with("model name") && colon != line.npos) {
      machine.cpu_model = line.substr(colon + 2);
    }
  }
  constexpr std::string_view kAllowed = "Cpus_allowed_list:";
  std::ifstream status(root / "proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kAllowed)) machine.cpus_allowed = count_list(line.substr(kAllowed.size()));
  }
  std::istringstream(first_line(root / "proc/loadavg")) >> machine.load;
}

void read_memory(const fs::path& root, Machine& machine) {
  std::uint64_t swap_free = 0;
  std::ifstream info(root / "proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = std::min(line.find(':'), line.size() - 1);
    const std::string name = line.substr(0, colon);
    const std::uint64_t bytes = leading_number(std::string_view(line).substr(colon + 1)) * 1024;
    if (name == "MemTotal") machine.memory_total = bytes;
    if (name == "MemAvailable") machine.memory_available = bytes;
    if (name == "SwapTotal") machine.swap_total = bytes;
    if (name == "SwapFree") swap_free = bytes;
    if (name == "CommitLimit") machine.commit_limit = bytes;
    if (name == "Committed_AS") machine.committed = bytes;
  }
  machine.swap_used = machine.swap_total - std::min(swap_free, machine.swap_total);
  machine.overcommit_mode =
      static_cast<int>(leading_number(first_line(root / "proc/sys/vm/overcommit_memory")));
  const std::string pages = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  if (const std::size_t open = pages.find('['); open != pages.npos) {
    machine.huge_pages = pages.substr(open + 1, pages.find(']') - open - 1);
  }
}

void read_limits(const fs::path& root, Machine& machine) {
  machine.cpu_quota = cgroup_cpu_quota(root);
  machine.memory_limit = cgroup_memory_limit(root);
  if (machine.memory_limit >= machine.memory_total) machine.memory_limit = 0;
}

bool has_nvidia_gpu(const fs::path& root) {
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator(root / "sys/bus/pci/devices", ignored)) {
    if (first_line(device.path() / "vendor") == "0x10de" &&
        first_line(device.path() / "class").starts_with("0x03")) {
      return true;
    }
  }
  return fs::exists(root / "proc/driver/nvidia/version", ignored);
}

}  // namespace

Machine read_machine(const fs::path& root) {
  Machine machine;
  read_cpus(root, machine);
  read_memory(root, machine);
  read_limits(root, machine);
  machine.nvidia_gpu = has_nvidia_gpu(root);
  return machine;
}

Disk read_disk(const fs::path& directory) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  return {error ? 0 : space.available, ::access(directory.c_str(), W_OK) == 0};
}

}  // namespace atl
