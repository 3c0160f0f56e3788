#include "atoll/watch/run_export.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/database.h"
#include "atoll/base/files/file.h"

namespace atl::watch {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

std::string to_cell(const metrics::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  const std::string& text = std::get<std::string>(value);
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Numbers as Trackio's serialize_values writes them, because JSON has no NaN and no infinities.
Json to_json(const metrics::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    return *number;
  }
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  return std::get<std::string>(value);
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

fs::path metrics_of(const RunData& run) {
  return run.dir / "metrics.jsonl";
}

// The tables of Trackio 0.43 that a run needs; it adds the others when it opens the file.
constexpr const char* kTrackioTables = R"(
CREATE TABLE IF NOT EXISTS metrics (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS configs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
CREATE TABLE IF NOT EXISTS alerts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, title TEXT NOT NULL, text TEXT, level TEXT NOT NULL DEFAULT 'warn',
  step INTEGER, alert_id TEXT);
CREATE INDEX IF NOT EXISTS idx_metrics_run_step ON metrics(run_id, step);
CREATE INDEX IF NOT EXISTS idx_metrics_run_timestamp ON metrics(run_id, timestamp);
)";

std::string config_json(const RunData& run, const std::string& name, const std::string& created) {
  Json config = {{"_Username", "atoll"}, {"_Created", created}, {"run", name}};
  for (const auto& [key, value] : run.settings) config[key] = value;
  return dump(config);
}

const char* trackio_level(metrics::Severity severity) {
  constexpr std::array kLevels = {"info", "warn", "error"};
  return kLevels.at(static_cast<std::size_t>(severity));
}

}  // namespace

std::string short_name(const RunData& run) {
  const std::string name = run.dir.lexically_normal().filename().string();
  return name.empty() || name == "." ? run.dir.lexically_normal().parent_path().filename().string()
                                     : name;
}

std::string iso_time(double unix_seconds) {
  const double whole = std::floor(unix_seconds);
  auto micros = static_cast<int>((unix_seconds - whole) * 1e6);
  micros = std::min(micros, 999'999);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}+00:00",
                     fmt::gmtime(static_cast<std::time_t>(whole)), micros);
}

void export_csv(const RunData& run, const fs::path& file) {
  std::vector<std::string> names;
  std::map<std::string, std::size_t> columns;
  for_each_record(metrics_of(run), [&](const metrics::Record& record) {
    for (const auto& [name, value] : record.values) {
      if (columns.emplace(name, names.size()).second) names.push_back(name);
    }
  });
  AtomicFile out(file);
  std::string line = "step,time";
  for (const std::string& name : names) line += "," + to_cell(metrics::Value(name));
  out.write(line + "\r\n");
  for_each_record(metrics_of(run), [&](const metrics::Record& record) {
    std::vector<std::string> cells(names.size());
    for (const auto& [name, value] : record.values) {
      // The run may have written a new metric since it was read.
      const auto found = columns.find(name);
      if (found != columns.end()) cells[found->second] = to_cell(value);
    }
    out.write(fmt::format("{},{}", record.step, record.wall_time_s));
    for (const std::string& cell : cells) out.write("," + cell);
    out.write("\r\n");
  });
  out.commit();
}

fs::path export_trackio(const RunData& run, const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot make", directory, error.value());
  const std::string name = short_name(run);
  Database database(directory / "atoll.db", Database::Open::kOrMake, "Trackio project");
  database.prepare_for_writing();
  Transaction transaction(database, Transaction::Kind::kWrite);
  database.execute(kTrackioTables);
  bool is_there = false;
  database.query("SELECT run_id FROM configs WHERE run_id = ?", {name},
                 [&](const SqlRow&) { is_there = true; });
  if (is_there) {
    throw user_error("{} has a run {} already; give another directory, or remove that run",
                     database.path().string(), name);
  }
  const std::string created = iso_time(run.first_time_s);
  database.run("INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)",
               {name, name, config_json(run, name, created), created});
  for_each_record(metrics_of(run), [&](const metrics::Record& record) {
    Json values;
    for (const auto& [key, value] : record.values) values[key] = to_json(value);
    database.run(
        "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
        {name, iso_time(record.wall_time_s), name, record.step, dump(values)});
  });
  for (const metrics::Alert& alert : run.alerts) {
    database.run(
        "INSERT INTO alerts (run_id, timestamp, run_name, title, text, level, step) VALUES (?, ?, "
        "?, ?, ?, ?, ?)",
        {name, iso_time(alert.time_s), name, std::string(metrics::name_of(alert.kind)),
         alert.message + ". Run: " + alert.command, std::string(trackio_level(alert.severity)),
         alert.step});
  }
  transaction.commit();
  return database.path();
}

}  // namespace atl::watch
