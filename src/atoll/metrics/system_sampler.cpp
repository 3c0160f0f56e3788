#include "atoll/metrics/system_sampler.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace atl::metrics {

namespace fs = std::filesystem;

namespace {

// The numbers that a text begins with.
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (double number; words >> number;) numbers.push_back(number);
  return numbers;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// proc(5): "cpu user nice system idle iowait irq softirq steal guest guest_nice", where
// user and nice include the guests.
void read_cpus(const fs::path& root, std::optional<double>& busy, std::optional<double>& all) {
  constexpr std::size_t kIdle = 3, kIoWait = 4, kCounted = 8;
  const std::string line = first_line(root / "proc/stat");
  if (!line.starts_with("cpu ")) return;
  const std::vector<double> ticks = numbers_of(line.substr(4));
  if (ticks.size() <= kIoWait) return;
  double sum = 0;
  for (std::size_t i = 0; i < ticks.size() && i < kCounted; ++i) sum += ticks[i];
  all = sum;
  busy = sum - ticks[kIdle] - ticks[kIoWait];
}

// proc(5): words 14 and 15 of a process's stat are its ticks in user and in kernel mode. The second
// word is the program's name in brackets, which may have blanks and brackets itself.
std::optional<double> process_seconds(const fs::path& root) {
  const std::string line = first_line(root / "proc/self/stat");
  const std::size_t end = line.rfind(')');
  if (end == line.npos) return std::nullopt;
  std::istringstream words(line.substr(end + 1));
  std::string word;
  for (int i = 3; i < 14; ++i) words >> word;
  double own = 0, systems = 0;
  if (!(words >> own >> systems)) return std::nullopt;
  return (own + systems) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Whether the name is that of a physical disk. Partitions, RAID and device-mapper volumes would
// count the same bytes a second time.
bool is_whole_disk(const fs::path& root, const std::string& name) {
  for (const char* made : {"loop", "ram", "zram", "dm-", "md", "sr"}) {
    if (name.starts_with(made)) return false;
  }
  std::error_code error;
  return fs::exists(root / "sys/block" / name, error);
}

// Lines of "major minor name reads merged sectors ms writes merged sectors ...".
void read_disks(const fs::path& root, std::optional<double>& read, std::optional<double>& written) {
  constexpr double kSector = 512;  // /proc/diskstats counts in 512 bytes on every disk
  std::ifstream file(root / "proc/diskstats");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string major, minor, name;
    double reads = 0, merged = 0, sectors_read = 0, ms = 0, writes = 0, sectors_written = 0;
    if (!(words >> major >> minor >> name >> reads >> merged >> sectors_read >> ms >> writes >>
          merged >> sectors_written)) {
      continue;
    }
    if (!is_whole_disk(root, name)) continue;
    read = read.value_or(0) + kSector * sectors_read;
    written = written.value_or(0) + kSector * sectors_written;
  }
}

// Where the machine has network cards, only they count: bridges and tunnels send through them. A
// container has no cards, only virtual interfaces.
void read_networks(const fs::path& root, std::optional<double>& received,
                   std::optional<double>& sent) {
  std::error_code error;
  std::vector<fs::path> cards, others;
  for (const auto& entry : fs::directory_iterator(root / "sys/class/net", error)) {
    if (entry.path().filename() == "lo") continue;
    std::error_code absent;
    (fs::exists(entry.path() / "device", absent) ? cards : others).push_back(entry.path());
  }
  for (const fs::path& one : cards.empty() ? others : cards) {
    const std::vector<double> in = numbers_of(first_line(one / "statistics/rx_bytes"));
    const std::vector<double> out = numbers_of(first_line(one / "statistics/tx_bytes"));
    if (in.empty() || out.empty()) continue;
    received = received.value_or(0) + in[0];
    sent = sent.value_or(0) + out[0];
  }
}

// MemTotal less MemAvailable: without caches that the system can drop.
std::optional<double> memory_taken(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::optional<double> total, available;
  std::string name;
  double kib = 0;
  for (std::string line; std::getline(file, line) && !(total && available);) {
    std::istringstream words(line);
    if (!(words >> name >> kib)) continue;
    if (name == "MemTotal:") total = 1024 * kib;
    if (name == "MemAvailable:") available = 1024 * kib;
  }
  if (!total || !available) return std::nullopt;
  return *total - *available;
}

std::optional<double> process_memory(const fs::path& root) {
  const std::vector<double> pages = numbers_of(first_line(root / "proc/self/statm"));
  if (pages.size() < 2) return std::nullopt;
  return pages[1] * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// How much a counter has grown. Nothing where it fell: a disk or card may have been removed.
std::optional<double> growth(const std::optional<double>& before,
                             const std::optional<double>& now) {
  if (!before || !now || *now < *before) return std::nullopt;
  return *now - *before;
}

}  // namespace

SystemSampler::SystemSampler(fs::path disk, Clock::duration every, fs::path root)
    : disk_(std::move(disk)),
      root_(std::move(root)),
      every_(every),
      taken_at_(Clock::now()),
      last_(read()) {}

SystemSampler::Counters SystemSampler::read() const {
  Counters now;
  read_cpus(root_, now.cpu_busy, now.cpu_all);
  now.process_seconds = process_seconds(root_);
  read_disks(root_, now.disk_read, now.disk_written);
  read_networks(root_, now.network_received, now.network_sent);
  return now;
}

SystemSampler::Values SystemSampler::sample(Clock::time_point now) {
  const Counters counters = read();
  const double seconds = std::chrono::duration<double>(now - taken_at_).count();
  Values values;
  const auto add = [&](const char* name, std::optional<double> value) {
    if (value) values.emplace_back(name, *value);
  };
  const auto rate = [&](const char* name, const std::optional<double>& before,
                        const std::optional<double>& after) {
    const std::optional<double> grown = growth(before, after);
    if (grown && seconds > 0) values.emplace_back(name, *grown / seconds);
  };
  const std::optional<double> all = growth(last_.cpu_all, counters.cpu_all);
  const std::optional<double> busy = growth(last_.cpu_busy, counters.cpu_busy);
  if (all && busy && *all > 0) add("system/cpu_fraction", *busy / *all);
  rate("system/process_cpus", last_.process_seconds, counters.process_seconds);
  add("system/memory_bytes", memory_taken(root_));
  add("system/process_memory_bytes", process_memory(root_));
  rate("system/disk_read_bytes_per_s", last_.disk_read, counters.disk_read);
  rate("system/disk_written_bytes_per_s", last_.disk_written, counters.disk_written);
  std::error_code error;
  const fs::space_info room = fs::space(disk_, error);
  if (!error) add("system/disk_free_bytes", static_cast<double>(room.available));
  rate("system/network_received_bytes_per_s", last_.network_received, counters.network_received);
  rate("system/network_sent_bytes_per_s", last_.network_sent, counters.network_sent);
  last_ = counters;
  taken_at_ = now;
  return values;
}

}  // namespace atl::metrics
