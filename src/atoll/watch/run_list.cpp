#include "atoll/watch/run_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/metrics/record.h"

namespace atl::watch {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNameColumns = 32;

std::int64_t steps_of(const RunData& run) {
  const std::string text = run.setting("train.steps");
  std::int64_t steps = 0;
  std::from_chars(text.data(), text.data() + text.size(), steps);
  return steps;
}

std::optional<double> last_of(const RunData& run, const char* metric) {
  const Curve* curve = run.curve(metric);
  if (curve == nullptr) return std::nullopt;
  return curve->last();
}

std::optional<double> lowest_of(const RunData& run, const char* metric) {
  const Curve* curve = run.curve(metric);
  return curve == nullptr ? std::nullopt : curve->lowest();
}

std::string text_of(const std::optional<double>& value) {
  return value ? format_value(*value) : "-";
}

// "3 min ago".
std::string format_age(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s ago", std::max(0.0, seconds));
  if (seconds < 7200) return fmt::format("{:.0f} min ago", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} h ago", seconds / 3600);
  return fmt::format("{:.0f} days ago", seconds / 86400);
}

std::string fit(const std::string& text) {
  return text.size() <= kNameColumns ? text : "~" + text.substr(text.size() - kNameColumns + 1);
}

Json json_of(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

const char* name_of(ListedState state) {
  constexpr const char* kNames[] = {"running", "finished", "stopped"};
  return kNames[static_cast<int>(state)];
}

ListedState state_of(const RunData& run) {
  if (run.is_running) return ListedState::kRunning;
  const std::int64_t steps = steps_of(run);
  const bool has_finished = (steps > 0 && run.last_step >= steps) ||
                            (run.finished_step >= 0 && run.finished_step >= run.last_step);
  return has_finished ? ListedState::kFinished : ListedState::kStopped;
}

const std::vector<std::string>& sort_names() {
  static const std::vector<std::string> names = {"time", "name", "step", "loss", "held_out"};
  return names;
}

void sort_runs(std::vector<RunData>& runs, const std::string& by) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // NaN comes last too.
  const auto finite = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? *value : kNone;
  };
  const auto key = [&](const RunData& run) {
    if (by == "time") return -run.last_time_s;
    if (by == "step") return -static_cast<double>(run.last_step);
    if (by == "loss") return finite(last_of(run, "loss"));
    if (by == "held_out") return finite(lowest_of(run, "held_out_loss"));
    return 0.0;
  };
  if (std::find(sort_names().begin(), sort_names().end(), by) == sort_names().end()) {
    throw user_error("runs are not sorted by '{}'; one of {}", by, fmt::join(sort_names(), ", "));
  }
  std::stable_sort(runs.begin(), runs.end(), [&](const RunData& a, const RunData& b) {
    return by == "name" ? a.name < b.name : key(a) < key(b);
  });
}

std::string describe_list(const std::vector<RunData>& runs) {
  std::string text =
      fmt::format("{:<{}}  {:<8}  {:>13}  {:>9}  {:>9}  {:>10}  {:>6}  {}\n", "run", kNameColumns,
                  "state", "step", "loss", "held out", "tok/s", "alerts", "last record");
  const double now = metrics::wall_time_now();
  for (const RunData& run : runs) {
    const std::int64_t steps = steps_of(run);
    text += fmt::format(
        "{:<{}}  {:<8}  {:>13}  {:>9}  {:>9}  {:>10}  {:>6}  {}\n", fit(run.name), kNameColumns,
        name_of(state_of(run)),
        steps > 0 ? fmt::format("{}/{}", run.last_step, steps) : std::to_string(run.last_step),
        text_of(last_of(run, "loss")), text_of(lowest_of(run, "held_out_loss")),
        run.curve("tokens_per_s") == nullptr
            ? "-"
            : format_count(std::llround(run.curve("tokens_per_s")->last())),
        run.alerts.size(), run.last_time_s > 0 ? format_age(now - run.last_time_s) : "-");
  }
  return text;
}

std::string list_json(const std::vector<RunData>& runs) {
  Json list = Json::array();
  for (const RunData& run : runs) {
    list.push_back({{"run", run.name},
                    {"dir", run.dir.string()},
                    {"state", name_of(state_of(run))},
                    {"step", run.last_step},
                    {"steps", steps_of(run)},
                    {"loss", json_of(last_of(run, "loss"))},
                    {"held_out_loss", json_of(last_of(run, "held_out_loss"))},
                    {"best_held_out_loss", json_of(lowest_of(run, "held_out_loss"))},
                    {"tokens_per_s", json_of(last_of(run, "tokens_per_s"))},
                    {"alerts", run.alerts.size()},
                    {"records", run.num_records},
                    {"bad_lines", run.num_bad_lines},
                    {"first_record", run.first_time_s},
                    {"last_record", run.last_time_s}});
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atl::watch
