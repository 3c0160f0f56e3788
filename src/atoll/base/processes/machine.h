#pragma once

// What a machine has, as /proc and /sys tell it.

#include <cstdint>
#include <filesystem>
#include <string>

namespace atl {

/// Facts about the machine, or the container, this runs on. Zero and empty: not known.
struct Machine {
  std::string cpu_model;
  int cpus_present = 0;
  int cpus_allowed = 0;  ///< in the affinity mask
  double cpu_quota = 0;  ///< CPUs' worth of time that the cgroup grants; 0: no limit
  double load = 0;       ///< runnable processes, mean of the last minute
  std::uint64_t memory_total = 0;
  std::uint64_t memory_available = 0;
  std::uint64_t memory_limit = 0;  ///< of the cgroup; 0: no limit
  std::uint64_t swap_total = 0;
  std::uint64_t swap_used = 0;
  int overcommit_mode = 0;  ///< vm.overcommit_memory
  std::uint64_t commit_limit = 0;
  std::uint64_t committed = 0;
  std::string huge_pages;   ///< transparent huge pages: "always", "madvise" or "never"
  bool nvidia_gpu = false;  ///< one is plugged in, whether or not it can be used
};

/// Reads the files under `root`, which is "/" but in tests. Never throws for one that is missing.
Machine read_machine(const std::filesystem::path& root = "/");

/// The place a run would write to.
struct Disk {
  std::uint64_t available = 0;  ///< bytes
  bool writable = false;
};

/// The disk that `directory` is on.
Disk read_disk(const std::filesystem::path& directory);

}  // namespace atl
