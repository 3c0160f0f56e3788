#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace atl::metrics {

/// The value of a metric.
using Value = std::variant<double, std::int64_t, std::string>;

/// The time now in Unix seconds, for Record::wall_time_s.
inline double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What was measured at one step. Names of metrics are words with underscores ("grad_norm"); a
/// group comes before a slash ("eval/loss").
struct Record {
  std::int64_t step = 0;
  double wall_time_s = wall_time_now();
  std::vector<std::pair<std::string, Value>> values;  ///< in the order in which they are written

  void add(std::string name, double value) { values.emplace_back(std::move(name), value); }
  void add(std::string name, std::int64_t value) { values.emplace_back(std::move(name), value); }
  void add(std::string name, std::string value) {
    values.emplace_back(std::move(name), std::move(value));
  }
};

}  // namespace atl::metrics
