#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "atoll/base/quantity.h"
#include "atoll/watch/run_compare.h"
#include "atoll/watch/run_export.h"
#include "atoll/watch/run_list.h"
#include "atoll/watch/run_plot.h"

namespace atl::watch {

namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Runs of atoll</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 62rem; margin: 1rem auto; padding: 0 1rem; color: #222;
       background: #fff; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid #ddd; padding: 0.15rem 0.6rem; text-align: left; }
code { overflow-wrap: anywhere; }
.error { color: #b00020; } .warning { color: #8a5a00; }
</style></head><body>
)";

// What people look at first, then the rest by name; what only counts is no curve.
std::vector<std::string> curves_of(const std::vector<RunData>& runs) {
  std::set<std::string> names;
  for (const RunData& run : runs) names.insert(run.names.begin(), run.names.end());
  std::vector<std::string> ordered;
  for (const char* first : {"loss", "held_out_loss", "grad_norm", "lr", "tokens_per_s"}) {
    if (names.erase(first) > 0) ordered.emplace_back(first);
  }
  names.erase("tokens");
  ordered.insert(ordered.end(), names.begin(), names.end());
  return ordered;
}

std::string row(const std::vector<std::string>& cells, const char* kind = "td") {
  std::string text = "<tr>";
  for (const std::string& cell : cells) {
    text += fmt::format("<{0}>{1}</{0}>", kind, escape_markup(cell));
  }
  return text + "</tr>\n";
}

std::string summary(const std::vector<RunData>& runs) {
  std::string text =
      "<table>\n" + row({"run", "state", "step", "loss", "best held out", "last record"}, "th");
  for (const RunData& run : runs) {
    const Curve* loss = run.curve("loss");
    const Curve* held_out = run.curve("held_out_loss");
    const std::optional<double> best = held_out == nullptr ? std::nullopt : held_out->lowest();
    text +=
        row({run.name, name_of(state_of(run)), format_count(run.last_step),
             loss == nullptr ? "-" : format_value(loss->last()), best ? format_value(*best) : "-",
             run.last_time_s > 0 ? iso_time(run.last_time_s) : "-"});
  }
  return text + "</table>\n";
}

std::string alerts_of(const std::vector<RunData>& runs) {
  std::string text;
  for (const RunData& run : runs) {
    for (const metrics::Alert& alert : run.alerts) {
      text += fmt::format(
          "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code></td>"
          "</tr>\n",
          metrics::name_of(alert.severity), escape_markup(run.name), iso_time(alert.time_s),
          metrics::name_of(alert.kind), escape_markup(alert.message), escape_markup(alert.command));
    }
  }
  return text.empty() ? "" : "<h2>Alerts</h2>\n<table>\n" + text + "</table>\n";
}

std::string settings_of(const std::vector<RunData>& runs) {
  std::vector<std::string> heads = {"setting"};
  for (const RunData& run : runs) heads.push_back(run.name);
  std::string text;
  if (runs.size() > 1) {
    text += "<h2>Settings that differ</h2>\n<table>\n" + row(heads, "th");
    for (const SettingDifference& one : differences(runs)) {
      std::vector<std::string> cells = {one.key};
      cells.insert(cells.end(), one.values.begin(), one.values.end());
      text += row(cells);
    }
    text += "</table>\n";
  }
  for (const RunData& run : runs) {
    text += fmt::format("<details><summary>All settings of {}</summary>\n<table>\n",
                        escape_markup(run.name));
    for (const auto& [key, value] : run.settings) text += row({key, value});
    text += "</table></details>\n";
  }
  return text;
}

}  // namespace

std::string export_html(const std::vector<RunData>& runs) {
  std::string text = std::string(kHead) + "<h1>Runs</h1>\n" + summary(runs) + alerts_of(runs);
  text += "<h2>Curves</h2>\n";
  for (const std::string& metric : curves_of(runs)) {
    text += plot_svg(runs, {.metric = metric});
  }
  return text + settings_of(runs) + "</body></html>\n";
}

}  // namespace atl::watch
