#pragma once

// What the machine of a run does beside the numbers of its steps.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace atl::metrics {

/// Reads a few small files of /proc and /sys, no more often than it is asked to. What a system does
/// not tell is left out, never an error.
class SystemSampler {
 public:
  using Clock = std::chrono::steady_clock;
  using Values = std::vector<std::pair<std::string, double>>;

  /// `disk`: a directory on the disk whose room is told. `every`: between two samples. `root` is
  /// "/" but in tests.
  SystemSampler(std::filesystem::path disk, Clock::duration every,
                std::filesystem::path root = "/");

  /// Whether `every` has passed since the last sample.
  bool is_due(Clock::time_point now = Clock::now()) const { return now - taken_at_ >= every_; }
  /// By name: "system/cpu_fraction" (of all CPUs, 0 to 1), "system/process_cpus" (how many this
  /// process keeps busy), "system/memory_bytes" and "system/process_memory_bytes" (that are taken),
  /// "system/disk_read_bytes_per_s", "system/disk_written_bytes_per_s" (all disks of the machine),
  /// "system/disk_free_bytes" and, all networks but the loopback together,
  /// "system/network_received_bytes_per_s", "system/network_sent_bytes_per_s". Rates are means
  /// since the sample before.
  Values sample(Clock::time_point now = Clock::now());

 private:
  // What only grows; nothing: it cannot be read.
  struct Counters {
    std::optional<double> cpu_busy, cpu_all;  // ticks
    std::optional<double> process_seconds;
    std::optional<double> disk_read, disk_written;         // bytes
    std::optional<double> network_received, network_sent;  // bytes
  };
  Counters read() const;

  std::filesystem::path disk_, root_;
  Clock::duration every_;
  Clock::time_point taken_at_;
  Counters last_;
};

}  // namespace atl::metrics
