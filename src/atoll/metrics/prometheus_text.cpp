#include "atoll/metrics/prometheus_text.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace atl::metrics {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && is_label) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

const char* name_of(PrometheusType type) {
  switch (type) {
    case PrometheusType::kCounter:
      return "counter";
    case PrometheusType::kHistogram:
      return "histogram";
    default:
      return "gauge";
  }
}

// When this process began, in Unix seconds: its start in ticks since the system's start, and the
// system's start, both from /proc.
double process_start_s() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  // The 20th word after the program's name, which may have blanks itself.
  std::istringstream words(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  const double ticks = std::strtod(word.c_str(), nullptr);
  std::ifstream all("/proc/stat");
  double booted_s = 0;
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with("btime ")) booted_s = std::strtod(line.c_str() + 6, nullptr);
  }
  return booted_s + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::string prometheus_name(std::string_view metric) {
  std::string name = "atoll_";
  for (const char c : metric) {
    name += is_letter(c) || (c >= '0' && c <= '9') ? c : '_';
  }
  // Prometheus's linter refuses abbreviated units.
  if (name.ends_with("_per_s")) name += "econd";
  for (const char* kept : {"_total", "_sum", "_count", "_bucket", "_info"}) {
    if (name.ends_with(kept)) name += "_value";
  }
  return name;
}

bool PrometheusText::family(const std::string& name, PrometheusType type, std::string_view help) {
  name_ = name;
  if (!begun_.insert(name).second) return false;
  text_ +=
      fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, name_of(type));
  return true;
}

void PrometheusText::sample(double value, const Labels& labels) {
  text_ += name_;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first,
                         escaped(labels[i].second, true));
  }
  if (!labels.empty()) text_ += "}";
  text_ += " " + number(value) + "\n";
}

void PrometheusText::histogram(const std::string& name, std::string_view help,
                               std::span<const double> bounds,
                               std::span<const std::uint64_t> counts, double sum) {
  if (!family(name, PrometheusType::kHistogram, help)) return;
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    so_far += counts[i];
    const std::string bound = i < bounds.size() ? number(bounds[i]) : "+Inf";
    text_ += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, so_far);
  }
  text_ += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, number(sum), so_far);
}

void add_process(PrometheusText& page) {
  const auto add = [&](const char* name, PrometheusType type, const char* help, double value) {
    if (page.family(name, type, help)) page.sample(value);
  };
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  add("process_cpu_seconds_total", PrometheusType::kCounter,
      "CPU time of this process, its own and the system's.",
      seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  std::ifstream memory("/proc/self/statm");
  double pages = 0, resident = 0;
  if (memory >> pages >> resident) {
    add("process_resident_memory_bytes", PrometheusType::kGauge, "Memory that is resident.",
        resident * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  }
  if (DIR* const open = ::opendir("/proc/self/fd"); open != nullptr) {
    int count = -3;  // ".", "..", and this directory itself
    while (::readdir(open) != nullptr) ++count;
    ::closedir(open);
    add("process_open_fds", PrometheusType::kGauge, "Descriptors that are open.", count);
  }
  add("process_start_time_seconds", PrometheusType::kGauge,
      "When this process began, in seconds since 1970.", process_start_s());
}

}  // namespace atl::metrics
