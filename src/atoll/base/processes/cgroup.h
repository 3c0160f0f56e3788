#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace atl {

/// The directories whose limits hold for this process, its own cgroup first, then those above.
/// `controller` is "" for version 2, and "cpu" or "memory" for version 1. `root` is "/" except in
/// tests. Some may not exist: a container often sees its own cgroup as the top.
std::vector<std::filesystem::path> cgroup_directories(const std::filesystem::path& root,
                                                      const std::string& controller);

/// CPUs' worth of time that the cgroups grant this process, the lowest limit on the way up, in
/// version 1 or 2; 0: no limit.
double cgroup_cpu_quota(const std::filesystem::path& root);

/// Bytes of memory that the cgroups grant this process, the lowest limit on the way up, in version
/// 1 or 2; 0: no limit. Who takes more is killed.
std::uint64_t cgroup_memory_limit(const std::filesystem::path& root);

/// Bytes of memory that this process may use: what the machine has, or the cgroups' limit where
/// that is less. Swap comes on top.
std::uint64_t usable_memory();

/// Bytes of swap that the machine has.
std::uint64_t swap_memory();

}  // namespace atl
