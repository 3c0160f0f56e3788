#include "atoll/tune/report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/tune/report/importance.h"
#include "atoll/tune/trial/trial_run.h"

namespace atl::tune {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::string row(const char* name, const std::string& value) {
  return fmt::format("{:<11} {}\n", name, value);
}

// Of what a run that is under way has written so far.
std::int64_t step_now(const StudyReport& report, const Trial& trial) {
  const fs::path path = log_dir(report.study, trial.number, trial.target) / "metrics.jsonl";
  std::int64_t step = trial.reached();
  if (!path_exists(path)) return step;
  for (const metrics::Record& record : metrics::read_jsonl(path)) {
    step = std::max(step, record.step);
  }
  return std::min(step, trial.target);
}

std::string state_of(const StudyReport& report, const Trial& trial) {
  if (trial.is_over()) return name_of(trial.end);
  if (!trial.is_due()) return "paused";
  return fmt::format("at {} of {}", step_now(report, trial), trial.target);
}

double last_cost(const StudyReport& report, const Trial& trial) {
  if (trial.measured.empty() || trial.has_failed()) {
    return std::numeric_limits<double>::infinity();
  }
  return cost(report.study.objectives(), 0, trial.measured.back().values.front());
}

std::string values_text(const Trial& trial, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += trial.measured.empty() ? fmt::format("{:>12} ", "-")
                                   : fmt::format("{:>12.5g} ", trial.measured.back().values[i]);
  }
  return text;
}

std::string describe_best(const StudyReport& report) {
  const std::vector<int> best =
      best_trials(report.history, report.study.objectives(), report.study.max_steps());
  if (best.empty()) return row("best", "none yet");
  std::string text;
  for (const int number : best) {
    const Trial& trial = report.history.trial(number);
    std::string values;
    for (std::size_t i = 0; i < report.study.objectives().size(); ++i) {
      values += fmt::format("{}{} {:.5g}", i > 0 ? ", " : "", report.study.objectives()[i].name,
                            trial.measured.back().values[i]);
    }
    text += row(text.empty() ? (best.size() > 1 ? "front" : "best") : "",
                fmt::format("trial {}: {} at step {}; {}", number, values, trial.reached(),
                            settings_text(trial)));
  }
  return text;
}

std::string describe_importance(const StudyReport& report) {
  const std::vector<double> importance = importance_of(
      report.study.space(), report.history, report.study.objectives(), report.study.seed());
  if (importance.empty()) return "";
  std::vector<std::size_t> order(importance.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return importance[a] > importance[b]; });
  std::string text;
  for (const std::size_t i : order) {
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", report.study.space()[i].key,
                        100 * importance[i]);
  }
  return row("importance", text);
}

}  // namespace

std::vector<std::pair<std::int64_t, double>> learning_curve(const StudyReport& report,
                                                            const Trial& trial) {
  std::map<std::int64_t, double> points;
  if (trial.parent >= 0) {
    for (const auto& [step, value] : learning_curve(report, report.history.trial(trial.parent))) {
      if (step <= trial.fork_step) points[step] = value;
    }
  }
  for (const Measurement& m : trial.measured) points[m.step] = m.values.front();
  // Evaluations between rungs are on the same curve only where the run is one.
  const std::string& name = report.study.objectives().front().name;
  const fs::path path = log_dir(report.study, trial.number, trial.target) / "metrics.jsonl";
  if (report.study.continues() && path_exists(path)) {
    for (const metrics::Record& record : metrics::read_jsonl(path)) {
      for (const auto& [key, value] : record.values) {
        const auto* number = std::get_if<double>(&value);
        if (key == name && number != nullptr) points.emplace(record.step, *number);
      }
    }
  }
  return {points.begin(), points.end()};
}

std::string describe(const StudyReport& report, int rows) {
  const auto& trials = report.history.trials();
  std::map<std::string, int> states;
  for (const Trial& trial : trials) {
    ++states[trial.is_over() ? name_of(trial.end) : trial.is_due() ? "under way" : "paused"];
  }
  std::string counts;
  for (const auto& [state, count] : states) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, state);
  }
  const StudySettings& s = report.study.settings();
  std::string text = row("study", fmt::format("{}: {}, scheduler {}, seed {}", s.dir, s.searcher,
                                              s.scheduler, s.seed));
  text += row("trials", fmt::format("{}{}{}", trials.size(), counts.empty() ? "" : ": ", counts));
  text += row("cost",
              fmt::format("{} tokens, {:.2f} hours at work", format_count(report.history.tokens()),
                          seconds_at_work(report.content.events) / 3600));
  text += describe_best(report);
  text += describe_importance(report);
  std::vector<const Trial*> order;
  for (const Trial& trial : trials) order.push_back(&trial);
  // Further ones first: a short trial's value is not comparable with a long one's.
  std::stable_sort(order.begin(), order.end(), [&](const Trial* a, const Trial* b) {
    const auto rank = [&](const Trial* t) {
      return std::pair(t->has_failed() ? 0 : -t->reached(), last_cost(report, *t));
    };
    return rank(a) < rank(b);
  });
  std::string names;
  for (const Objective& objective : report.study.objectives()) {
    names += fmt::format(
        "{:>12} ", objective.name.size() > 12 ? objective.name.substr(0, 12) : objective.name);
  }
  text += fmt::format("\n{:>5}  {:<14} {:>8} {} {}\n", "trial", "state", "step", names, "settings");
  int shown = 0;
  for (const Trial* trial : order) {
    if (rows > 0 && shown++ == rows) {
      text += fmt::format("       and {} more\n", static_cast<int>(order.size()) - rows);
      break;
    }
    const std::string from =
        trial->parent < 0 ? "" : fmt::format("  from {} at {}", trial->parent, trial->fork_step);
    text += fmt::format("{:>5}  {:<14} {:>8} {} {}{}\n", trial->number, state_of(report, *trial),
                        trial->reached(), values_text(*trial, report.study.objectives().size()),
                        settings_text(*trial), from);
  }
  return text;
}

std::string to_json(const StudyReport& report) {
  ordered_json trials = ordered_json::array();
  for (const Trial& trial : report.history.trials()) {
    ordered_json measured = ordered_json::array(), curve = ordered_json::array();
    for (const Measurement& m : trial.measured) {
      measured.push_back(
          {{"step", m.step}, {"values", m.values}, {"tokens", m.tokens}, {"seconds", m.seconds}});
    }
    for (const auto& [step, value] : learning_curve(report, trial)) curve.push_back({step, value});
    ordered_json settings = ordered_json::object();
    for (const auto& [key, value] : trial.settings) settings[key] = value;
    ordered_json json = {{"trial", trial.number},   {"state", state_of(report, trial)},
                         {"step", trial.reached()}, {"starts", trial.starts},
                         {"settings", settings},    {"units", trial.units},
                         {"measured", measured},    {"curve", curve}};
    if (trial.has_failed() || !trial.why.empty()) json["why"] = trial.why;
    if (trial.member >= 0) json["member"] = trial.member;
    if (trial.parent >= 0) {
      json["parent"] = trial.parent;
      json["fork_step"] = trial.fork_step;
    }
    trials.push_back(std::move(json));
  }
  ordered_json importance = ordered_json::object();
  const std::vector<double> shares = importance_of(report.study.space(), report.history,
                                                   report.study.objectives(), report.study.seed());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    importance[report.study.space()[i].key] = shares[i];
  }
  ordered_json objectives = ordered_json::array();
  for (const Objective& objective : report.study.objectives()) {
    objectives.push_back({{"name", objective.name}, {"maximise", objective.maximise}});
  }
  const ordered_json json = {
      {"study", report.study.settings().dir},
      {"searcher", report.study.settings().searcher},
      {"scheduler", report.study.settings().scheduler},
      {"objectives", objectives},
      {"best", best_trials(report.history, report.study.objectives(), report.study.max_steps())},
      {"importance", importance},
      {"tokens", report.history.tokens()},
      {"hours", seconds_at_work(report.content.events) / 3600},
      {"trials", trials}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string tuned_recipe(const Study& study, const Trial& trial) {
  std::vector<std::pair<std::string, std::string>> changed = trial.settings;
  const std::string name = fs::path(study.dir()).lexically_normal().filename().string();
  const std::string run =
      atl::to_toml(SettingValue(fmt::format("runs/{}-best", name.empty() ? "tuned" : name)));
  std::string text =
      fmt::format("# Trial {} of the study {}.\n", trial.number, study.dir().string());
  if (trial.parent >= 0) {
    text += fmt::format(
        "# It went on from trial {} at step {}, so a run of this recipe alone takes another way.\n",
        trial.parent, trial.fork_step);
  }
  changed.emplace_back("run.dir", run);
  return text + "\n" + to_recipe(study.recipe().settings(), changed, "");
}

}  // namespace atl::tune
