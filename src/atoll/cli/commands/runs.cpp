#include "atoll/cli/commands/runs.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/hash.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/pages/runs_curves.h"
#include "atoll/island/ledger/audit.h"
#include "atoll/island/ledger/audit_history.h"
#include "atoll/island/policy/policy.h"
#include "atoll/train/progress/progress.h"

namespace atl::cli {

namespace fs = std::filesystem;
using island::AuditReport;
using island::History;
using island::OuterAttempt;
using nlohmann::ordered_json;

namespace {

constexpr std::size_t kHashColumns = 8;
constexpr std::size_t kNameColumns = 20;
constexpr std::size_t kAddressColumns = 21;
constexpr std::size_t kBatchColumns = 36;
constexpr std::size_t kStartsShown = 3;

// --- Text

std::string fit(const std::string& text, std::size_t columns) {
  return text.size() <= columns ? text : text.substr(0, columns - 1) + "~";
}

std::string format_time(double unix_seconds) {
  constexpr double kYear9999 = 253402300800.0;
  if (!(unix_seconds >= 0 && unix_seconds < kYear9999)) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::string format_loss(double loss) {
  return std::abs(loss) < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.1e}", loss);
}

std::string to_hex(const island::StateHash& hash) {
  return atl::to_hex(Hash128{hash.high, hash.low});
}

std::string row(const char* name, const std::string& value) {
  return fmt::format("{:<12}{}\n", name, value);
}

const char* name_of(OuterAttempt::Outcome outcome) {
  constexpr const char* kNames[] = {"under way", "abandoned", "committed", "void"};
  return kNames[static_cast<int>(outcome)];
}

std::string describe_starts(const History& history) {
  std::string text = counted(std::ssize(history.starts), "start") + ": ";
  const std::size_t count = history.starts.size();
  const std::size_t first = count > kStartsShown ? count - kStartsShown : 0;
  if (first > 0) text += "the last with ";
  for (std::size_t i = first; i < count; ++i) {
    text += fmt::format("{}fence {} {}", i > first ? ", " : "", history.starts[i].fence,
                        format_time(history.starts[i].unix_seconds));
  }
  return text;
}

std::string describe_progress(const History& history) {
  std::int64_t tokens = 0;
  const OuterAttempt* first = nullptr;
  const OuterAttempt* last = nullptr;
  for (const OuterAttempt& attempt : history.attempts) {
    if (attempt.outcome != OuterAttempt::Outcome::kCommitted) continue;
    if (attempt.tokens() == 0) continue;  // the mean of all states
    if (first == nullptr) first = &attempt;
    last = &attempt;
    tokens += attempt.tokens();
  }
  std::string text = row(
      "outer steps",
      fmt::format("{} committed, {} abandoned, {} void; {}", format_count(history.num_committed),
                  counted(history.num_abandoned, "attempt"), format_count(history.num_void),
                  history.is_finished ? "finished" : "not finished"));
  if (first == nullptr) return text;
  return text + row("tokens", fmt::format("{}; loss {} in the first outer step, {} in the last",
                                          format_count(tokens), format_loss(first->loss()),
                                          format_loss(last->loss())));
}

std::string describe_islands(const History& history) {
  std::string text = fmt::format("{:>6}  {:<20}  {:<21}  {:<19}  {:>5}  {:>14}\n", "island", "name",
                                 "address", "joined (UTC)", "steps", "tokens");
  for (const auto& [id, island] : history.islands) {
    text += fmt::format(
        "{:>6}  {:<20}  {:<21}  {:<19}  {:>5}  {:>14}\n", id, fit(island.name, kNameColumns),
        island.address.empty() ? "calls out only" : fit(island.address, kAddressColumns),
        format_time(island.joined), island.outer_steps, format_count(island.tokens));
  }
  return text;
}

// As many ranges as there is room for.
std::string fit_batches(const std::vector<island::BatchRange>& ranges) {
  std::string text;
  for (std::size_t count = 4; count > 0; --count) {
    text = island::to_text(ranges, count);
    if (text.size() <= kBatchColumns) break;
  }
  return text;
}

std::string describe_outer_steps(const History& history) {
  std::string text = fmt::format("{:>6}  {:>4}  {:>3}  {:<19}  {:>12}  {:>8}  {}\n", "step", "frag",
                                 "try", "time (UTC)", "tokens", "loss", "hash, batches");
  for (const OuterAttempt& attempt : history.attempts) {
    const bool has_hash = attempt.hash != island::StateHash{};
    const bool stands = attempt.outcome == OuterAttempt::Outcome::kCommitted;
    text += fmt::format("{:>6}  {:>4}  {:>3}  {:<19}  {:>12}  {:>8}  {}{}{}\n",
                        attempt.reduce.outer_step, attempt.reduce.fragment, attempt.reduce.attempt,
                        format_time(has_hash ? attempt.ended : attempt.begun),
                        format_count(attempt.tokens()), format_loss(attempt.loss()),
                        has_hash ? fit(to_hex(attempt.hash), kHashColumns + 1) : "",
                        has_hash && !stands ? " " : "", stands ? "" : name_of(attempt.outcome));
    for (const island::LogContribution& x : attempt.reduce.contributions) {
      const auto member = history.islands.find(x.participant.island);
      const std::string name = member == history.islands.end() ? "?" : member->second.name;
      text += fmt::format("        {:<20}  {:>8}  {:>12}  {:>8}  {}\n", fit(name, kNameColumns),
                          fmt::format("{:.1f}%{}", 100 * x.participant.weight,
                                      x.exchange > 0 ? fmt::format(" /{}", x.exchange) : ""),
                          format_count(x.participant.tokens), format_loss(x.loss),
                          fit_batches(x.consumed));
    }
  }
  return text;
}

std::string describe_audit(const AuditReport& report) {
  if (report.is_proved()) {
    return row("audit",
               "proved: each outer step is committed once and in order, and each batch "
               "below") +
           row("", fmt::format("{} is once in them, or leased, or free",
                               format_count(report.high_water)));
  }
  std::string text = row(
      "audit", counted(std::ssize(report.findings) + static_cast<std::int64_t>(report.num_unsaid),
                       "finding"));
  for (const std::string& finding : report.findings) text += row("", finding);
  return text;
}

// --- JSON

ordered_json to_json(const std::vector<island::BatchRange>& ranges) {
  ordered_json json = ordered_json::array();
  for (const island::BatchRange& range : ranges) json.push_back({range.begin, range.end});
  return json;
}

// The newest that each island has measured of each link to it. Of more than kMostIslands islands,
// whose links nobody can look at together, the slowest of each.
ordered_json links_of(const History& history) {
  constexpr std::size_t kMostIslands = 64;
  std::map<island::IslandId, std::vector<island::LinkMeasurement>> newest;
  for (const OuterAttempt& attempt : history.attempts) {
    for (const island::LogContribution& x : attempt.reduce.contributions) {
      if (!x.measured.links.empty()) newest[x.participant.island] = x.measured.links;
    }
  }
  ordered_json json = ordered_json::array();
  for (auto& [id, links] : newest) {
    if (newest.size() > kMostIslands) {
      const auto slower = [](const auto& a, const auto& b) {
        return a.bytes_per_second < b.bytes_per_second;
      };
      links = {*std::ranges::min_element(links, slower)};
    }
    for (const island::LinkMeasurement& link : links) {
      json.push_back({{"from", link.island},
                      {"to", id},
                      {"bytes_per_second", link.bytes_per_second},
                      {"round_trip_seconds", link.round_trip_seconds}});
    }
  }
  return json;
}

ordered_json to_json(const OuterAttempt& attempt) {
  ordered_json members = ordered_json::array();
  for (const island::LogContribution& x : attempt.reduce.contributions) {
    members.push_back({{"island", x.participant.island},
                       {"weight", x.participant.weight},
                       {"tokens", x.participant.tokens},
                       {"loss", x.loss},
                       {"norm", x.norm},
                       {"batches", to_json(x.consumed)},
                       {"step_seconds", x.measured.step_seconds}});
    if (x.exchange > 0) members.back()["exchange"] = x.exchange;
  }
  ordered_json json = {{"outer_step", attempt.reduce.outer_step},
                       {"attempt", attempt.reduce.attempt},
                       {"fragment", attempt.reduce.fragment},
                       {"outcome", name_of(attempt.outcome)},
                       {"begun", attempt.begun},
                       {"members", members}};
  if (attempt.commit.next) {
    const island::RoundSchedule& next = *attempt.commit.next;
    json["next"] = {{"inner_steps", next.inner_steps},
                    {"overlap", next.overlap},
                    {"codec", next.codec},
                    {"outer_lr", next.outer_lr},
                    {"predicted_seconds", next.predicted_seconds},
                    {"why", attempt.commit.why}};
  }
  if (attempt.hash != island::StateHash{}) {
    json["exchange_seconds"] = attempt.commit.exchange_seconds;
    json["round_seconds"] = attempt.commit.round_seconds;
    json["committed"] = attempt.ended;
    json["hash"] = to_hex(attempt.hash);
  }
  return json;
}

ordered_json to_json(const AuditReport& report) {
  return {{"proved", report.is_proved()},
          {"findings", report.findings},
          {"more_findings", report.num_unsaid},
          {"batches",
           {{"consumed", report.consumed},
            {"leased", report.leased},
            {"returned", report.returned},
            {"high_water", report.high_water}}}};
}

// --- The command

struct Options {
  std::string action;
  std::vector<std::string> paths;
  bool outer_steps = false;
  bool json = false;
  RunsOptions curves;
};

int show(const std::string& directory, const Options& options) {
  const fs::path path = find_ledger(directory);
  const island::LedgerContent ledger = island::read_ledger(path);
  if (options.json) {
    fmt::print("{}\n", run_json(ledger, options.outer_steps));
  } else {
    fmt::print("{}", describe_run(ledger, options.outer_steps));
  }
  return island::audit(ledger.records).is_proved() ? 0 : 1;
}

int explain(const std::string& directory) {
  const island::LedgerContent ledger = island::read_ledger(find_ledger(directory));
  fmt::print("{}", explain_run(ledger));
  return 0;
}

// Flags of another action are refused: nobody should think that they did something.
void check_flags(const Options& options, const ArgumentParser& parser) {
  const std::map<std::string, std::set<std::string>> takers = {
      {"--outer-steps", {"show"}},
      {"--json", {"show", "list", "compare"}},
      {"--sort", {"list"}},
      {"--metric", {"compare", "plot"}},
      {"--rows", {"compare", "plot"}},
      {"--x", {"plot"}},
      {"--smooth", {"plot"}},
      {"--log", {"plot"}},
      {"--svg", {"plot"}},
      {"--format", {"export"}},
      {"--out", {"export"}},
  };
  for (const auto& [flag, actions] : takers) {
    if (parser.count(flag) == 0 || actions.count(options.action) > 0) continue;
    throw user_error("{} belongs to `atoll runs {}`", flag,
                     fmt::format("{}", fmt::join(actions, "`, `atoll runs ")));
  }
}

const std::string& the_only_path(const Options& options) {
  if (options.paths.size() == 1) return options.paths.front();
  throw user_error("`atoll runs {}` takes one directory: of a run with islands or its coordinator",
                   options.action);
}

int run_action(const Options& options) {
  if (options.action == "show") return show(the_only_path(options), options);
  if (options.action == "explain") return explain(the_only_path(options));
  RunsOptions curves = options.curves;
  curves.json = options.json;
  if (options.action == "list") return list_runs(options.paths, curves);
  if (options.action == "compare") return compare_runs(options.paths, curves);
  if (options.action == "export") return export_runs(options.paths, curves);
  return plot_runs(options.paths, curves);
}

Action add(ArgumentParser& parser) {
  auto options = std::make_shared<Options>();  // lives as long as the parser and the action
  parser
      .add_option(
          "action", options->action,
          "list: runs below a directory. compare: settings that differ, curves side by side. "
          "plot: curves. export: for other programs. show: what islands did. explain: why their "
          "policy changed what")
      .required()
      .one_of({"list", "compare", "plot", "export", "show", "explain"});
  parser.add_option(
      "directory", options->paths,
      "Of runs; show and explain: of a run with islands or its coordinator; or a ledger");
  parser.add_flag("--outer-steps", options->outer_steps,
                  "Every attempt at an outer step, and who contributed what");
  parser.add_flag("--json", options->json, "JSON instead of tables");
  RunsOptions& curves = options->curves;
  parser.add_option("--sort", curves.sort, "time, name, step, loss or held_out").show_default();
  parser.add_option("--metric", curves.metrics, "Of metrics.jsonl; plot: one, compare: any number");
  parser.add_option("--rows", curves.rows, "Lines of a curve");
  parser.add_option("--x", curves.x, "step, tokens or hours").show_default();
  parser.add_option("--smooth", curves.smooth, "Part of the value before that stays, 0 to below 1");
  parser.add_flag("--log", curves.log_y, "Logarithms of values");
  parser.add_option("--svg", curves.svg, "File to draw the curves into, instead of text");
  parser
      .add_option("--format", curves.format,
                  "csv, wandb (an offline run for `wandb sync`), trackio, or html (one page)")
      .one_of({"csv", "wandb", "trackio", "html"});
  parser.add_option("--out", curves.out, "File of csv and html, directory of wandb and trackio");
  return [options, parser](const Invocation&) {
    check_flags(*options, parser);
    return run_action(*options);
  };
}

}  // namespace

fs::path find_ledger(const fs::path& path) {
  if (!path_exists(path)) {
    throw user_error("there is no directory {}{}", path.string(), advice_for_absent(path));
  }
  if (file_exists(path)) return path;
  for (const fs::path& directory : {path, path / "coordinator"}) {
    if (path_exists(directory / island::kLedgerFile)) return directory / island::kLedgerFile;
  }
  if (path_exists(path / "metrics.jsonl")) {
    throw user_error(
        "{} is a run without islands, which keeps no {}; `atoll runs plot` and `atoll runs "
        "compare` "
        "show its curves, and `atoll doctor` looks at its checkpoints",
        path.string(), island::kLedgerFile);
  }
  throw user_error(
      "{} has no {}; give the directory of a run with islands, or the --dir of its coordinator",
      path.string(), island::kLedgerFile);
}

std::string describe_run(const island::LedgerContent& ledger, bool outer_steps) {
  const History history = island::tell_history(ledger.records);
  const AuditReport report = island::audit(ledger.records);
  const island::RunIdentity& run = ledger.identity;
  const auto brief = [](const std::string& text) { return fit(text, kHashColumns); };
  const std::string settings = to_hex(hash_bytes(run.settings.data(), run.settings.size()));
  const double first = ledger.records.empty() ? 0 : ledger.records.front().unix_seconds;
  const double last = ledger.records.empty() ? 0 : ledger.records.back().unix_seconds;
  std::string text = row("run", fit(run.run, 88));
  text += row("identity", fmt::format("protocol {}, model {}, tokenizer {}, data {}, settings {}",
                                      brief(run.version), brief(run.model), brief(run.tokenizer),
                                      brief(run.data), brief(settings)));
  text +=
      row("ledger", fmt::format("{}, {} to {} (UTC)", counted(std::ssize(ledger.records), "record"),
                                format_time(first), format_time(last)));
  text += row("coordinator", describe_starts(history));
  text += describe_progress(history);
  text += row("batches", fmt::format("{} consumed, {} leased, {} given back and free",
                                     format_count(report.consumed), format_count(report.leased),
                                     format_count(report.returned)));
  text += "\n" + describe_islands(history) + "\n";
  if (outer_steps) text += describe_outer_steps(history) + "\n";
  return text + describe_audit(report);
}

std::string explain_run(const island::LedgerContent& ledger) {
  const History history = island::tell_history(ledger.records);
  const island::PolicyPlan& plan = history.policy;
  if (plan.policy == "fixed") return row("policy", "fixed: every round is as the settings say");
  std::string text = row(
      "policy",
      fmt::format("{}, from {}, {} to {}", plan.policy, island::to_text(plan.base, plan.fragments),
                  plan.min_inner_steps * plan.fragments, plan.max_inner_steps * plan.fragments));
  std::vector<double> errors;
  double predicted = 0;
  double bytes = 0;
  std::string codec = plan.base.codec;
  for (const OuterAttempt& attempt : history.attempts) {
    if (attempt.outcome != OuterAttempt::Outcome::kCommitted) continue;
    const island::LogCommit& commit = attempt.commit;
    bytes += island::exchange_bytes(codec, plan.parameters,
                                    static_cast<int>(attempt.reduce.contributions.size()));
    if (predicted > 0 && commit.exchange_seconds > 0) {
      errors.push_back(std::abs(predicted / commit.exchange_seconds - 1));
    }
    if (commit.next) {
      predicted = commit.next->predicted_seconds;
      codec = commit.next->codec;
    }
    if (commit.why.empty()) continue;
    text += row(fmt::format("step {}", commit.outer_step + 1).c_str(), commit.why);
  }
  text += row("sent",
              fmt::format("{:.2f} MB by each island, by the sizes of its exchanges", bytes / 1e6));
  if (errors.empty()) return text;
  std::ranges::sort(errors);
  const auto at = [&](double part) {
    return 100 * errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1))];
  };
  return text + row("predictions",
                    fmt::format("of {}: within {:.0f}% (median), {:.0f}% (95%)",
                                counted(std::ssize(errors), "exchange"), at(0.5), at(0.95)));
}

std::string run_json(const island::LedgerContent& ledger, bool outer_steps, std::size_t most) {
  const History history = island::tell_history(ledger.records);
  const AuditReport report = island::audit(ledger.records);
  const island::RunIdentity& run = ledger.identity;
  ordered_json json = {{"run", run.run},
                       {"protocol", run.version},
                       {"model", run.model},
                       {"tokenizer", run.tokenizer},
                       {"data", run.data},
                       {"settings", run.settings},
                       {"records", ledger.records.size()},
                       {"finished", history.is_finished},
                       {"committed", history.num_committed},
                       {"abandoned", history.num_abandoned},
                       {"void", history.num_void}};
  json["starts"] = ordered_json::array();
  for (const History::Start& start : history.starts) {
    json["starts"].push_back({{"fence", start.fence}, {"time", start.unix_seconds}});
  }
  json["islands"] = ordered_json::array();
  for (const auto& [id, island] : history.islands) {
    json["islands"].push_back({{"island", id},
                               {"name", island.name},
                               {"address", island.address},
                               {"joined", island.joined},
                               {"outer_steps", island.outer_steps},
                               {"tokens", island.tokens}});
  }
  json["links"] = links_of(history);
  if (outer_steps) {
    json["outer_steps"] = ordered_json::array();
    const std::size_t count = history.attempts.size();
    for (std::size_t i = count - std::min(most, count); i < count; ++i) {
      json["outer_steps"].push_back(to_json(history.attempts[i]));
    }
  }
  json["audit"] = to_json(report);
  // Names that are no UTF-8 are shown as far as they are.
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

Command runs_command() {
  return {.name = "runs",
          .summary = "List, compare and plot runs; show what islands did, and audit it.",
          .example =
              "  atoll runs list runs\n"
              "  atoll runs compare runs/kjv-demo runs/short\n"
              "  atoll runs plot runs/kjv-demo runs/short --metric held_out_loss\n"
              "  atoll runs export runs/kjv-demo --format html --out kjv.html\n"
              "  atoll runs show runs/kjv-islands\n"
              "  atoll runs show runs/kjv-islands --outer-steps --json\n"
              "  atoll runs explain runs/kjv-islands",
          .add = add};
}

}  // namespace atl::cli
