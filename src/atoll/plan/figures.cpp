#include "atoll/plan/figures.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/nearest.h"
#include "atoll/base/settings/settings.h"
#include "atoll/base/settings/toml.h"

namespace atl::plan {

namespace {

/// One number of a file.
struct Number {
  const char* key;
  double* value;
  Range range;
};

std::vector<Number> numbers_of_link(Link& link) {
  return {{"latency_s", &link.latency_s, at_least(0)},
          {"gather_bytes_per_s", &link.gather_bytes_per_s, above(0)},
          {"reduce_bytes_per_s", &link.reduce_bytes_per_s, above(0)},
          {"send_bytes_per_s", &link.send_bytes_per_s, above(0)}};
}

std::vector<Number> numbers_of_machine(Figures& figures) {
  return {{"memory_gib", &figures.memory_gib, at_least(0)},
          {"flops_per_s", &figures.flops_per_s, above(0)},
          {"bytes_per_s", &figures.bytes_per_s, above(0)},
          {"call_s", &figures.call_s, at_least(0)},
          {"layer_factor", &figures.layer_factor, above(0)},
          {"overlap", &figures.overlap, between(0, 1)}};
}

/// Reads the entries of one file.
class Reader {
 public:
  explicit Reader(const std::string& origin) : origin_(origin) {}

  Figures read(std::string_view text) {
    for (const TomlEntry& entry : parse_toml(text, origin_)) take(entry);
    if (figures_.flops_per_s == 0) missing("machine.flops_per_s", "the FLOP/s of its products");
    if (figures_.bytes_per_s == 0) missing("machine.bytes_per_s", "what its memory moves");
    if (figures_.speedups.back() != 1) {
      throw user_error("{}: machine.speedups ends with {}; the last is 1: all ranks are at work",
                       origin_, figures_.speedups.back());
    }
    return figures_;
  }

 private:
  [[noreturn]] void missing(const char* key, const char* what) const {
    throw user_error("{}: {} is missing: {}", origin_, key, what);
  }
  std::string place(const TomlEntry& entry) const {
    return fmt::format("{}:{}: {}", origin_, entry.line, entry.key);
  }
  double number(const TomlEntry& entry, const Range& range) const {
    double value = std::numeric_limits<double>::quiet_NaN();
    if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      value = static_cast<double>(*integer);
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      value = *real;
    }
    if (entry.known && std::isfinite(value) && range.contains(value)) return value;
    throw user_error("{} is {}, and a number {} is wanted", place(entry), entry.text, range.text());
  }
  [[noreturn]] void unknown(const TomlEntry& entry) const {
    std::vector<std::string> names = {"machine.name", "machine.ranks_per_host", "machine.threads",
                                      "machine.speedups"};
    Figures figures;
    for (const Number& at : numbers_of_machine(figures)) {
      names.push_back(fmt::format("machine.{}", at.key));
    }
    for (const Number& at : numbers_of_link(figures.network)) {
      names.push_back(fmt::format("network.{}", at.key));
      names.push_back(fmt::format("host.2.{}", at.key));
    }
    const std::string near = nearest_name(entry.key, names);
    throw user_error("{} is no figure{}", place(entry),
                     near.empty() ? "; `atoll plan --write-figures FILE` writes all there are"
                                  : fmt::format("; did you mean {}?", near));
  }

  void take(const TomlEntry& entry) {
    if (entry.table) return;
    if (entry.key.starts_with("rates.")) {
      figures_.rates[entry.key.substr(6)] = number(entry, above(0));
    } else if (entry.key.starts_with("machine.")) {
      machine(entry, entry.key.substr(8));
    } else if (entry.key.starts_with("network.")) {
      link(entry, entry.key.substr(8), figures_.network);
    } else if (entry.key.starts_with("host.")) {
      host(entry, std::string_view(entry.key).substr(5));
    } else {
      unknown(entry);
    }
  }

  void machine(const TomlEntry& entry, const std::string& key) {
    if (key == "name") {
      const auto* name = std::get_if<std::string>(&entry.value);
      if (!entry.known || name == nullptr) {
        throw user_error("{} is {}, and a text is wanted", place(entry), entry.text);
      }
      figures_.machine = *name;
    } else if (key == "ranks_per_host") {
      figures_.ranks_per_host = whole(entry, 1);
    } else if (key == "threads") {
      figures_.threads = whole(entry, 0);
    } else if (key == "speedups") {
      speedups(entry);
    } else {
      set(entry, key, numbers_of_machine(figures_));
    }
  }
  int whole(const TomlEntry& entry, double low) const {
    const double value = number(entry, between(low, 1 << 20));
    if (value != std::floor(value)) {
      throw user_error("{} is {}, and a whole number is wanted", place(entry), entry.text);
    }
    return static_cast<int>(value);
  }
  void speedups(const TomlEntry& entry) {
    const auto* all = std::get_if<std::vector<double>>(&entry.value);
    bool holds = entry.known && all != nullptr && !all->empty();
    for (std::size_t i = 0; holds && i < all->size(); ++i) holds = (*all)[i] > 0;
    if (!holds) {
      throw user_error("{} is {}, and a list of numbers above 0 is wanted", place(entry),
                       entry.text);
    }
    figures_.speedups = *all;
  }
  void host(const TomlEntry& entry, std::string_view key) {
    int size = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), size);
    if (error != std::errc() || size < 2 || end == key.data() + key.size() || *end != '.') {
      unknown(entry);
    }
    link(entry, std::string(end + 1, key.data() + key.size()), figures_.host[size]);
  }
  void link(const TomlEntry& entry, const std::string& key, Link& link) {
    set(entry, key, numbers_of_link(link));
  }
  void set(const TomlEntry& entry, const std::string& key, const std::vector<Number>& numbers) {
    for (const Number& at : numbers) {
      if (key != at.key) continue;
      *at.value = number(entry, at.range);
      return;
    }
    unknown(entry);
  }

  std::string origin_;
  Figures figures_;
};

void write(std::string& text, const std::vector<Number>& numbers) {
  for (const Number& at : numbers) {
    text += fmt::format("{} = {}\n", at.key, atl::to_toml(SettingValue(*at.value)));
  }
}

/// How far one call's sizes are from those that a rate was measured at; nothing for another op.
std::optional<double> apart(const OpCase& op, std::string_view key) {
  const std::size_t space = key.rfind(' ');
  if (space == key.npos || key.substr(0, space) != op.name) return std::nullopt;
  double sum = 0;
  const char* at = key.data() + space + 1;
  const char* end = key.data() + key.size();
  for (const std::int64_t size : op.sizes) {
    std::int64_t measured = 0;
    const auto read = std::from_chars(at, end, measured);
    if (read.ec != std::errc()) break;
    sum += std::abs(std::log2(static_cast<double>(std::max<std::int64_t>(1, size))) -
                    std::log2(static_cast<double>(std::max<std::int64_t>(1, measured))));
    at = std::min(end, read.ptr + 1);
  }
  return sum;
}

}  // namespace

std::string rate_key(const OpCase& op) {
  std::string sizes;
  for (const std::int64_t size : op.sizes) {
    if (size > 0) sizes += fmt::format("{}{}", sizes.empty() ? "" : "x", size);
  }
  return fmt::format("{} {}", op.name, sizes);
}

double seconds_of(const Figures& figures, const OpCase& op) {
  const double general =
      op.bound == OpCase::Bound::kArithmetic ? figures.flops_per_s : figures.bytes_per_s;
  double rate = general;
  double nearest = std::numeric_limits<double>::infinity();
  const std::string first = op.name + " ";
  for (auto at = figures.rates.lower_bound(first);
       at != figures.rates.end() && at->first.starts_with(first); ++at) {
    const std::optional<double> distance = apart(op, at->first);
    if (!distance || *distance >= nearest) continue;
    nearest = *distance;
    rate = at->second;
  }
  return std::max(op.amount / rate, figures.call_s);
}

const Link& host_link(const Figures& figures, int group_size) {
  if (figures.host.empty()) return figures.network;
  const Link* best = nullptr;
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& [size, link] : figures.host) {
    const double distance = std::abs(std::log2(static_cast<double>(size) / group_size));
    if (distance >= nearest) continue;
    nearest = distance;
    best = &link;
  }
  return *best;
}

std::string to_toml(const Figures& figures) {
  Figures copy = figures;
  std::string text = "# Of one rank while all ranks of its host are at work.\n[machine]\n";
  text += fmt::format("name = {}\nranks_per_host = {}\nthreads = {}\nspeedups = {}\n",
                      atl::to_toml(SettingValue(copy.machine)), copy.ranks_per_host, copy.threads,
                      atl::to_toml(SettingValue(copy.speedups)));
  write(text, numbers_of_machine(copy));
  text += "\n# Between hosts, one way, all ranks of a host together.\n[network]\n";
  write(text, numbers_of_link(copy.network));
  for (auto& [size, link] : copy.host) {
    text += fmt::format("\n# Among {} ranks of a host.\n[host.{}]\n", size, size);
    write(text, numbers_of_link(link));
  }
  if (!copy.rates.empty()) text += "\n# FLOP/s or bytes/s, by op and sizes.\n[rates]\n";
  for (const auto& [key, rate] : copy.rates) {
    text +=
        fmt::format("{} = {}\n", atl::to_toml(SettingValue(key)), atl::to_toml(SettingValue(rate)));
  }
  return text;
}

Figures parse_figures(std::string_view text, const std::string& origin) {
  return Reader(origin).read(text);
}

Figures read_figures(const std::filesystem::path& path) {
  return parse_figures(read_file(path), path.string());
}

}  // namespace atl::plan
