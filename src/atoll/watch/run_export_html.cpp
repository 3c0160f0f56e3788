#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
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

// The metrics to draw: the most important first, then the others by name. "tokens" only counts up.
std::vector<std::string> curves_of(const std::vector<RunData>& runs) {
  std::set<std::string> names;
  for (const RunData& run : runs) names.insert(run.names.begin(), run.names.end());
  std::vector<std::string> ordered;
  for (const char* first : {"loss", "held_out_loss", "reward_margin", "reward_accuracy",
                            "grad_norm", "lr", "tokens_per_s"}) {
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

// The last JSON objects of a file of lines in the run's directory; other lines are left out.
std::vector<nlohmann::ordered_json> lines_of(const std::filesystem::path& path) {
  constexpr std::uint64_t kMaxBytes = 16 << 20;
  constexpr std::size_t kMost = 200;
  std::vector<nlohmann::ordered_json> list;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return list;
  std::istringstream lines(read_file(path, kMaxBytes));
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // a line without a line end
    try {
      nlohmann::ordered_json object = parse_ordered_json(line, path.string());
      if (object.is_object()) list.push_back(std::move(object));
    } catch (const Error&) {
      continue;  // of another version, or damaged
    }
  }
  if (list.size() > kMost) list.erase(list.begin(), list.end() - kMost);
  return list;
}

std::string text_in(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// The samples that the model wrote at evaluations, and the notes of people.
std::string texts_of(const std::vector<RunData>& runs) {
  std::string samples, notes;
  for (const RunData& run : runs) {
    for (const auto& one : lines_of(run.dir / "samples.jsonl")) {
      samples +=
          fmt::format("<tr><td>{}</td><td>{}</td><td><b>{}</b>{}</td></tr>\n",
                      escape_markup(run.name), escape_markup(text_in(one, "step")),
                      escape_markup(text_in(one, "prompt")), escape_markup(text_in(one, "text")));
    }
    for (const auto& one : lines_of(run.dir / "notes.jsonl")) {
      notes += row({run.name, text_in(one, "text")});
    }
  }
  std::string text;
  if (!notes.empty()) text += "<h2>Notes</h2>\n<table>\n" + notes + "</table>\n";
  if (!samples.empty()) {
    text +=
        "<h2>Samples</h2>\n<table>\n" + row({"run", "step", "text"}, "th") + samples + "</table>\n";
  }
  return text;
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
  return text + texts_of(runs) + settings_of(runs) + "</body></html>\n";
}

}  // namespace atl::watch
