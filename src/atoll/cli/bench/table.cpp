#include "atoll/cli/bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace atl::cli {

namespace {

using Row = ops::OpProfile::Row;

constexpr double kLeast = 0.001;  // of the step: rows below it are one line together

std::string line(const Row& row, const Ceilings& ceilings, double steps, double total) {
  const auto calls = static_cast<double>(row.calls);
  const auto rate = [&](double amount) {
    return amount > 0 ? fmt::format("{:.1f}", amount * calls / row.seconds / 1e9) : "";
  };
  return fmt::format("{:<28} {:<10} {:<22} {:>6.0f} {:>9.2f} {:>6.1f} {:>8} {:>7} {:>6.0f}\n",
                     row.op, row.implementation, row.cost.shape.to_string(), calls / steps,
                     1e3 * row.seconds / steps, 100 * row.seconds / total, rate(row.cost.flops),
                     rate(row.cost.bytes), 100 * roofline_fraction(row, ceilings));
}

}  // namespace

double roofline_fraction(const Row& row, const Ceilings& ceilings) {
  const double best = std::max(row.cost.flops / ceilings.flops, row.cost.bytes / ceilings.bytes);
  return row.seconds > 0 ? best * static_cast<double>(row.calls) / row.seconds : 0;
}

std::string op_table(std::span<const Row> rows, const Ceilings& ceilings,
                     std::span<const double> step_seconds) {
  const auto steps = static_cast<double>(step_seconds.size());
  const double total = std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  std::vector<Row> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  std::string text =
      fmt::format("{:<28} {:<10} {:<22} {:>6} {:>9} {:>6} {:>8} {:>7} {:>6}\n", "op", "by", "shape",
                  "calls", "ms/step", "%", "GFLOP/s", "GB/s", "roof%");
  double named = 0, products = 0, small = 0;
  for (const Row& row : sorted) {
    named += row.seconds;
    if (row.cost.flops > 0) products += row.seconds;
    if (row.seconds < kLeast * total) {
      small += row.seconds;
    } else {
      text += line(row, ceilings, steps, total);
    }
  }
  const auto sum = [&](const char* name, double seconds) {
    text += fmt::format("{:<69} {:>9.2f} {:>6.1f}\n", name, 1e3 * seconds / steps,
                        100 * seconds / total);
  };
  if (small > 0) sum("others, each below 0.1%", small);
  sum("between ops", total - named);
  sum("products and attention", products);
  return text;
}

std::string figure_table(std::span<const Figure> figures) {
  std::vector<std::array<std::string, 5>> lines = {{"", "measured", "limit", "%", ""}};
  for (const Figure& figure : figures) {
    lines.push_back({figure.what, fmt::format("{:.1f} {}", figure.value, figure.unit),
                     fmt::format("{:.1f}  {}", figure.limit, figure.limit_is),
                     fmt::format("{:.0f}", 100 * figure.share), figure.note});
  }
  std::array<std::size_t, 5> widths = {};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row = fmt::format("{:<{}}  {:>{}}  {:<{}}  {:>{}}  {}", line[0], widths[0], line[1],
                                  widths[1], line[2], widths[2], line[3], widths[3], line[4]);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string figures_to_json(std::span<const Figure> figures) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Figure& figure : figures) {
    list.push_back({{"what", figure.what},
                    {"value", figure.value},
                    {"unit", figure.unit},
                    {"limit", figure.limit},
                    {"limit_is", figure.limit_is},
                    {"percent", 100 * figure.share},
                    {"note", figure.note}});
  }
  return list.dump();
}

}  // namespace atl::cli
