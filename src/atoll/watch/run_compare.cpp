#include "atoll/watch/run_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"

namespace atl::watch {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kColumn = 14;

// "A", "B", ... "Z", "AA": short names of runs in tables.
std::string letter_of(std::size_t number) {
  std::string text;
  for (std::size_t left = number + 1; left > 0; left = (left - 1) / 26) {
    text.insert(text.begin(), static_cast<char>('A' + (left - 1) % 26));
  }
  return text;
}

// Whether a higher value of the metric is better.
bool is_more_better(const std::string& metric) {
  return metric == "tokens_per_s" || metric == "mfu";
}

std::string value_of(const std::optional<double>& value) {
  return value ? format_value(*value) : "-";
}

std::vector<std::string> chosen(const std::vector<RunData>& runs,
                                std::vector<std::string> metrics) {
  if (metrics.empty()) {
    for (const char* name : {"loss", "held_out_loss"}) {
      for (const RunData& run : runs) {
        if (run.curve(name) == nullptr) continue;
        metrics.emplace_back(name);
        break;
      }
    }
    return metrics;
  }
  for (const std::string& name : metrics) {
    std::set<std::string> known;
    for (const RunData& run : runs) known.insert(run.names.begin(), run.names.end());
    if (known.count(name) > 0) continue;
    throw user_error("no run has a metric '{}'; there are {}", name,
                     known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
  return metrics;
}

// Steps at even distances, up to the last step of any run.
std::vector<std::int64_t> steps_shown(const std::vector<RunData>& runs, const std::string& metric,
                                      int rows) {
  std::set<std::int64_t> known;
  for (const RunData& run : runs) {
    const Curve* curve = run.curve(metric);
    if (curve == nullptr) continue;
    for (const CurveBucket& one : curve->buckets()) known.insert(one.last_step);
  }
  const std::vector<std::int64_t> all(known.begin(), known.end());
  std::vector<std::int64_t> shown;
  const auto count = std::min(all.size(), static_cast<std::size_t>(std::max(1, rows)));
  for (std::size_t i = 0; i < count; ++i) {
    shown.push_back(count == 1 ? all.back() : all[i * (all.size() - 1) / (count - 1)]);
  }
  return shown;
}

std::string describe_curves(const std::vector<RunData>& runs, const std::string& metric, int rows) {
  std::string text = fmt::format("\n{:>10}", "step");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("  {:>{}}", fmt::format("{} {}", letter_of(i), metric), kColumn);
  }
  text += "\n";
  const auto add = [&](const std::string& label, const auto& value) {
    text += fmt::format("{:>10}", label);
    for (const RunData& run : runs) {
      const Curve* curve = run.curve(metric);
      const std::optional<double> number =
          curve == nullptr ? std::nullopt : std::optional<double>(value(*curve));
      text += fmt::format("  {:>{}}", value_of(number), kColumn);
    }
    text += "\n";
  };
  for (const std::int64_t step : steps_shown(runs, metric, rows)) {
    add(std::to_string(step), [step](const Curve& curve) { return curve.at(step); });
  }
  add("last", [](const Curve& curve) { return std::optional<double>(curve.last()); });
  add("best", [&](const Curve& curve) {
    return is_more_better(metric) ? curve.highest() : curve.lowest();
  });
  return text;
}

}  // namespace

std::vector<SettingDifference> differences(const std::vector<RunData>& runs) {
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (const RunData& run : runs) {
    for (const auto& [key, value] : run.settings) {
      if (known.insert(key).second) keys.push_back(key);
    }
  }
  std::vector<SettingDifference> result;
  for (const std::string& key : keys) {
    SettingDifference one = {key, {}};
    for (const RunData& run : runs) one.values.push_back(run.setting(key));
    const bool differs = std::any_of(one.values.begin(), one.values.end(),
                                     [&](const auto& value) { return value != one.values[0]; });
    if (differs) result.push_back(std::move(one));
  }
  return result;
}

std::string describe_comparison(const std::vector<RunData>& runs, std::vector<std::string> metrics,
                                int rows) {
  std::string text;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("{}  {}{}\n", letter_of(i), runs[i].name,
                        runs[i].settings.empty() ? "  (it has no settings.toml)" : "");
  }
  const std::vector<SettingDifference> differing = differences(runs);
  text += differing.empty() ? "\nno setting differs\n" : "\nsettings that differ\n";
  for (const SettingDifference& one : differing) {
    text += fmt::format("  {}\n", one.key);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      text += fmt::format("    {}  {}\n", letter_of(i),
                          one.values[i].empty() ? "(not set)" : one.values[i]);
    }
  }
  metrics = chosen(runs, std::move(metrics));
  for (const std::string& metric : metrics) text += describe_curves(runs, metric, rows);
  return text;
}

std::string comparison_json(const std::vector<RunData>& runs, std::vector<std::string> metrics) {
  Json json;
  json["runs"] = Json::array();
  for (const RunData& run : runs) json["runs"].push_back(run.name);
  json["settings"] = Json::object();
  for (const SettingDifference& one : differences(runs)) {
    Json values = Json::array();
    for (const std::string& value : one.values) {
      values.push_back(value.empty() ? Json(nullptr) : Json(value));
    }
    json["settings"][one.key] = values;
  }
  json["curves"] = Json::object();
  for (const std::string& metric : chosen(runs, std::move(metrics))) {
    Json all = Json::array();
    for (const RunData& run : runs) {
      Json points = Json::array();
      const Curve* curve = run.curve(metric);
      if (curve != nullptr) {
        for (const CurveBucket& one : curve->buckets()) {
          points.push_back({{"step", one.last_step},
                            {"mean", one.count > 0 ? Json(one.mean()) : Json(nullptr)},
                            {"lowest", one.count > 0 ? Json(one.lowest) : Json(nullptr)},
                            {"highest", one.count > 0 ? Json(one.highest) : Json(nullptr)},
                            {"nonfinite", one.nonfinite}});
        }
      }
      all.push_back(points);
    }
    json["curves"][metric] = all;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atl::watch
