#pragma once

// How busy the machine of a run is: CPUs, memory, disks and networks.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace atl::metrics {

/// Measures the machine by a few small files of /proc and /sys. A value that the system does not
/// give is left out; that is never an error.
class SystemSampler {
 public:
  using Clock = std::chrono::steady_clock;
  using Values = std::vector<std::pair<std::string, double>>;

  /// `disk`: a directory on the disk whose free space is measured. `every`: the time between two
  /// samples, for is_due(). `root`: where proc/ and sys/ are; other than "/" only in tests.
  SystemSampler(std::filesystem::path disk, Clock::duration every,
                std::filesystem::path root = "/");

  /// Whether `every` has passed since the last sample.
  bool is_due(Clock::time_point now = Clock::now()) const { return now - taken_at_ >= every_; }
  /// Takes a sample: values by name. "system/cpu_fraction" (busy part of all CPUs, 0 to 1),
  /// "system/process_cpus" (CPUs that this process keeps busy), "system/memory_bytes" and
  /// "system/process_memory_bytes" (in use), "system/disk_read_bytes_per_s",
  /// "system/disk_written_bytes_per_s" (sums over the machine's disks), "system/disk_free_bytes",
  /// "system/network_received_bytes_per_s", "system/network_sent_bytes_per_s" (sums over the
  /// network cards; where there are none, over all interfaces but the loopback). Fractions and
  /// rates are means since the previous sample.
  Values sample(Clock::time_point now = Clock::now());

 private:
  // Counters of the system, which only grow; nothing where one cannot be read.
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
