#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/tune/report/drawing.h"
#include "atoll/tune/report/importance.h"
#include "atoll/tune/report/report.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

std::string axis_value(double value) {
  return fmt::format("{:.4g}", value);
}

// Trials that have shown something, the worst first, with their quality from 0 to 1 by rank.
struct Ranked {
  const Trial* trial;
  double quality;
};
std::vector<Ranked> ranked(const StudyReport& report) {
  std::vector<Ranked> all;
  for (const Trial& trial : report.history.trials()) {
    if (!trial.measured.empty() && !trial.has_failed()) all.push_back({&trial, 0});
  }
  std::stable_sort(all.begin(), all.end(), [&](const Ranked& a, const Ranked& b) {
    const auto key = [&](const Ranked& r) {
      return std::pair(r.trial->reached(),
                       -cost(report.study.objectives(), 0, r.trial->measured.back().values[0]));
    };
    return key(a) < key(b);
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].quality =
        all.size() > 1 ? static_cast<double>(i) / static_cast<double>(all.size() - 1) : 1;
  }
  return all;
}

std::string title_of(const Trial& trial) {
  return fmt::format("trial {}: {:.5g} at step {}; {}", trial.number,
                     trial.measured.empty() ? NAN : trial.measured.back().values.front(),
                     trial.reached(), settings_text(trial));
}

std::string plot_importance(const StudyReport& report) {
  const std::vector<double> shares = importance_of(report.study.space(), report.history,
                                                   report.study.objectives(), report.study.seed());
  const double height = kTop + kBottom + 30 * static_cast<double>(report.study.space().size());
  Drawing drawing("Share of the objective's variance that each setting explains", height);
  if (shares.empty()) drawing.text(kWidth / 2, kTop + 20, "too few results yet", "middle");
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double y = kTop + 30 * static_cast<double>(i), left = 240;
    drawing.text(left - 8, y + 16, report.study.space()[i].key, "end");
    drawing.box(left, y, shares[i] * (kWidth - left - 90), 22, color_of(1));
    drawing.text(left + shares[i] * (kWidth - left - 90) + 6, y + 16,
                 fmt::format("{:.1f}%", 100 * shares[i]));
  }
  return drawing.svg();
}

std::string plot_parallel(const StudyReport& report) {
  const Space& space = report.study.space();
  Drawing drawing("Settings and objective of each trial");
  const std::size_t axes = space.size() + 1;
  const auto x_of = [&](std::size_t i) {
    return kLeft +
           static_cast<double>(i) * (kWidth - kLeft - kRight - 40) / static_cast<double>(axes - 1);
  };
  const std::vector<Ranked> all = ranked(report);
  std::vector<double> values;
  for (const Ranked& one : all) values.push_back(one.trial->measured.back().values.front());
  const double top = kTop + 20, bottom = kHeight - kBottom;
  const Axis objective = Axis::of(values, bottom, top);
  for (std::size_t i = 0; i < axes; ++i) {
    drawing.line(x_of(i), top, x_of(i), bottom, "#444444");
    const bool is_last = i + 1 == axes;
    drawing.text(x_of(i), bottom + 32,
                 is_last ? report.study.objectives().front().name : space[i].key, "middle");
    drawing.text(x_of(i), bottom + 15,
                 is_last ? axis_value(objective.low) : atl::to_toml(space[i].value(0)), "middle",
                 10);
    drawing.text(x_of(i), top - 6,
                 is_last ? axis_value(objective.high) : atl::to_toml(space[i].value(1)), "middle",
                 10);
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Trial& trial = *all[k].trial;
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < space.size(); ++i) {
      points.emplace_back(x_of(i), bottom - trial.units[i] * (bottom - top));
    }
    points.emplace_back(x_of(axes - 1), objective(trial.measured.back().values.front()));
    const bool is_best = k + 1 == all.size();
    drawing.polyline(points, is_best ? kBest : color_of(all[k].quality), is_best ? 2.5 : 1,
                     title_of(trial));
  }
  return drawing.svg();
}

void draw_axes(Drawing& drawing, const Axis& x, const Axis& y, const std::string& y_name) {
  drawing.line(x.at_low, y.at_low, x.at_high, y.at_low, "#444444");
  drawing.line(x.at_low, y.at_low, x.at_low, y.at_high, "#444444");
  drawing.text(x.at_low, y.at_low + 16, axis_value(x.low), "middle", 10);
  drawing.text(x.at_high, y.at_low + 16, axis_value(x.high), "middle", 10);
  drawing.text(x.at_low - 6, y.at_low, axis_value(y.low), "end", 10);
  drawing.text(x.at_low - 6, y.at_high + 4, axis_value(y.high), "end", 10);
  drawing.text((x.at_low + x.at_high) / 2, y.at_low + 34, "step", "middle");
  drawing.text(x.at_low, y.at_high - 8, y_name);
}

std::string plot_curves(const StudyReport& report) {
  Drawing drawing("Learning curves");
  const std::vector<Ranked> all = ranked(report);
  std::vector<std::vector<std::pair<std::int64_t, double>>> curves;
  std::vector<double> steps, values;
  for (const Ranked& one : all) {
    for (const auto& [step, value] : curves.emplace_back(learning_curve(report, *one.trial))) {
      steps.push_back(static_cast<double>(step));
      values.push_back(value);
    }
  }
  // What has exploded would leave no room for the others.
  std::sort(values.begin(), values.end());
  if (values.size() > 10) values.resize(values.size() * 19 / 20);
  const Axis x = Axis::of(steps, kLeft, kWidth - kRight);
  const Axis y = Axis::of(values, kHeight - kBottom, kTop + 20);
  draw_axes(drawing, x, y, report.study.objectives().front().name);
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [step, value] : curves[k]) {
      if (!std::isfinite(value)) continue;
      points.emplace_back(x(static_cast<double>(step)),
                          std::clamp(y(value), kTop, kHeight - kBottom));
    }
    const bool is_best = k + 1 == all.size();
    const std::string color = is_best ? kBest : color_of(all[k].quality);
    drawing.polyline(points, color, is_best ? 2.5 : 1, title_of(*all[k].trial));
    if (points.size() == 1) {
      drawing.dot(points[0].first, points[0].second, color, title_of(*all[k].trial));
    }
  }
  return drawing.svg();
}

std::string plot_family(const StudyReport& report) {
  const auto& trials = report.history.trials();
  int members = 0;
  double last = 1;
  for (const Trial& trial : trials) {
    members = std::max(members, trial.member + 1);
    last = std::max(last, static_cast<double>(std::max(trial.target, trial.reached())));
  }
  const double height = kTop + kBottom + 34 * members;
  Drawing drawing("Who went on from whom: a row a member, steps from left to right", height);
  const Axis x = {0, last, kLeft, kWidth - kRight};
  const auto y_of = [&](const Trial& trial) { return kTop + 20 + 34.0 * trial.member; };
  const std::vector<Ranked> all = ranked(report);
  const auto color = [&](const Trial& trial) -> std::string {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k].trial == &trial) return k + 1 == all.size() ? kBest : color_of(all[k].quality);
    }
    return "#cc3333";  // it failed
  };
  for (const Trial& trial : trials) {
    if (trial.member < 0) continue;
    const double from = x(static_cast<double>(trial.fork_step));
    const double to = x(static_cast<double>(trial.reached()));
    if (trial.parent >= 0) {
      const Trial& parent = trials[static_cast<std::size_t>(trial.parent)];
      drawing.line(from - 6, y_of(parent), from + 6, y_of(trial), "#888888");
    }
    drawing.polyline({{from, y_of(trial)}, {to, y_of(trial)}}, color(trial), 3, title_of(trial));
    drawing.dot(to, y_of(trial), color(trial), title_of(trial));
  }
  for (int m = 0; m < members; ++m) {
    drawing.text(kLeft - 12, kTop + 24 + 34.0 * m, std::to_string(m), "end");
  }
  drawing.text(kLeft, height - 12, "0", "middle", 10);
  drawing.text(kWidth - kRight, height - 12, axis_value(last), "middle", 10);
  return drawing.svg();
}

}  // namespace

std::vector<fs::path> write_plots(const StudyReport& report, const fs::path& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) throw io_error("cannot make", directory, failure.value());
  std::vector<std::pair<const char*, std::string>> plots = {
      {"importance.svg", plot_importance(report)},
      {"parallel.svg", plot_parallel(report)},
      {"curves.svg", plot_curves(report)}};
  if (report.study.settings().scheduler == "pbt") {
    plots.emplace_back("family.svg", plot_family(report));
  }
  std::vector<fs::path> paths;
  for (const auto& [name, svg] : plots) {
    write_file(directory / name, svg);
    paths.push_back(directory / name);
  }
  return paths;
}

}  // namespace atl::tune
